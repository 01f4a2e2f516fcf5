/** The chat with one or two models: session, composer and settings. */
import { useQuery } from "@tanstack/react-query";
import { ArrowUp, ChevronRight, MessageSquareText, Square, Trash2 } from "lucide-react";
import { type KeyboardEvent, type ReactNode, useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import { openedQuery, playgroundQuery, type Source } from "@/api/playground";
import { mayPass, sentenceOf } from "@/api/problem";
import type { PlaygroundSession } from "@/api/types";
import { isWide } from "@/components/accordion";
import { Button, Spinner } from "@/components/button";
import { Card } from "@/components/card";
import { Textarea } from "@/components/input";
import { EmptyState } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { countText, durationText } from "@/text/numbers";
import { CodePanel } from "./code-panel";
import { type Mode, useConversation } from "./conversation";
import { loadSettings, mistakesIn, type PlaygroundSettings, SamplingFields, saveSettings } from "./sampling";
import { TurnsView } from "./turns-view";

type SessionState =
  | { kind: "loading"; words: string }
  | { kind: "ready"; session: PlaygroundSession }
  | { kind: "unloaded"; reason: string }
  | { kind: "failed"; problem: string };

/** Loads what is to be talked to when the page is opened, and again when somebody asks for it. */
function useSession(source: Source): { state: SessionState; open: () => void } {
  const [attempt, setAttempt] = useState(1);
  const opened = useQuery(openedQuery(source, attempt));
  const id = opened.data?.id;
  const session = useQuery({ ...playgroundQuery(id ?? ""), enabled: id !== undefined });
  // A failure that may pass hides nothing; one that stays, such as 404, means that the playground is gone.
  const error = opened.error ?? (session.data === undefined || !mayPass(session.error) ? session.error : null);
  return { state: error ? { kind: "failed", problem: sentenceOf(error) } : stateOf(id === undefined ? undefined : session.data), open: () => setAttempt((count) => count + 1) };
}

function stateOf(session: PlaygroundSession | undefined): SessionState {
  switch (session?.state) {
    case "ready":
      return { kind: "ready", session };
    case "ended":
      return endOf(session);
    case "stopping":
      return { kind: "loading", words: "Unloading the model" };
    case "loading":
      return { kind: "loading", words: session.job.status === "running" ? "Loading the weights" : "Starting the model server" };
    case "waiting":
      return { kind: "loading", words: "Waiting for a free device" };
    default:
      return { kind: "loading", words: "Requesting the model" };
  }
}

function endOf({ job }: PlaygroundSession): SessionState {
  if (job.status === "failed") return { kind: "failed", problem: job.error_message ?? "No reason was recorded." };
  const minutes = job.task?.kind === "serve" ? job.task.idle_minutes : 10;
  const reason = job.error_message ?? (job.status === "completed" ? `The model received no request for ${minutes} minutes, so its memory was freed.` : "The model was stopped and its memory was freed.");
  return { kind: "unloaded", reason };
}

const NAMES: Record<string, string> = { base: "Base", tuned: "Tuned", model: "Model", other: "Other checkpoint" };

type ChatProps = {
  source: Source;
  storageKey: string;
  names?: Record<string, string>;
  /** What is typed and not sent yet. It outlives this conversation. */
  draft: string;
  onDraft: (text: string) => void;
};

/** One conversation with one loaded model, or with it and its base at once. */
export function Chat({ source, storageKey, names, draft, onDraft }: ChatProps) {
  const { state, open } = useSession(source);
  const [settings, setSettings] = useState(loadSettings);
  useEffect(() => saveSettings(settings), [settings]);
  const session = state.kind === "ready" ? state.session : null;
  const available = session?.models ?? [];
  // Two answers fit beside each other: a second checkpoint takes the place of the base model.
  const compares = source.other_checkpoint_id !== undefined;
  const models = settings.sideBySide && !compares ? available.filter((model) => model !== "other") : available.filter((model) => model !== "base" && (compares || model !== "other"));
  const conversation = useConversation(storageKey, { sessionId: session?.job.id ?? null, contextLength: session?.context_length ?? null, models, sampling: settings.sampling });
  // The server refuses a conversation with a model that knows no form of conversations.
  const canChat = session?.chat_template !== false;
  const mode: Mode = canChat ? settings.mode : "complete";
  const sound = Object.keys(mistakesIn(settings.sampling)).length === 0;
  const set = (change: Partial<PlaygroundSettings>) => setSettings((kept) => ({ ...kept, ...change }));

  return (
    <div className="grid items-start gap-3.5 lg:grid-cols-[minmax(0,1fr)_20rem]">
      <Card className="lg:h-[calc(100dvh-14.75rem)] lg:min-h-120">
        <Tabs value={mode} onValueChange={(next) => set({ mode: next as Mode })} className="flex h-full flex-col gap-3">
          <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
            <TabList aria-label="Mode">
              <Tab value="chat" disabled={!canChat}>
                Chat
              </Tab>
              <Tab value="complete">Completion</Tab>
            </TabList>
            {available.includes("base") && !compares && <SideBySide checked={settings.sideBySide} onChange={(sideBySide) => set({ sideBySide })} />}
            <Button variant="ghost" size="small" className="ml-auto" disabled={conversation.turns.length === 0} onClick={conversation.clear}>
              <Trash2 aria-hidden />
              Clear
            </Button>
          </div>
          <TabPanel value={mode} tabIndex={-1} className="mt-0 flex min-h-0 flex-1 flex-col gap-3">
            <SessionStrip state={state} onOpen={open} />
            {!canChat && <p className="text-xs text-dim">This model has no chat template and was not trained on conversations, so it only continues texts.</p>}
            {conversation.turns.length === 0 ? (
              <div className="grid flex-1 place-items-center">
                <EmptyState icon={MessageSquareText} title={mode === "chat" ? "Send a message to the model." : "Enter the beginning of a text. The model continues the text."}>
                  {compares ? "Both checkpoints answer side by side, with the same seed." : available.includes("base") ? "The base model and the fine-tuned model answer side by side." : "The answer appears token by token. The conversation is stored only in this browser tab."}
                </EmptyState>
              </div>
            ) : (
              <TurnsView turns={conversation.turns} names={{ ...NAMES, ...names }} writing={conversation.writing} onRetry={session && sound ? conversation.retry : undefined} />
            )}
            <div className="max-lg:sticky max-lg:bottom-0 max-lg:-mx-4 max-lg:-mb-3.5 max-lg:rounded-b-card max-lg:border-t max-lg:border-line max-lg:bg-card max-lg:px-4 max-lg:py-3">
              <Composer text={draft} onText={onDraft} mode={mode} writing={conversation.writing} ready={session !== null && sound} onSend={(text) => conversation.ask(mode, text)} onStop={conversation.stop} />
              {!sound && <p className="mt-1.5 text-xs text-danger-soft">A sampling setting is invalid. Correct the setting before you send.</p>}
            </div>
          </TabPanel>
        </Tabs>
      </Card>
      <div className="grid gap-3.5">
        <CardAccordion title="Sampling settings" note={session?.context_length ? `context length ${countText(session.context_length)}` : undefined}>
          <SamplingFields texts={settings.sampling} chat={mode === "chat"} onChange={(sampling) => set({ sampling })} />
        </CardAccordion>
        {session && (
          <CardAccordion title="API access" startsClosed>
            <CodePanel model={session.job.id} />
          </CardAccordion>
        )}
      </div>
    </div>
  );
}

function SideBySide({ checked, onChange }: { checked: boolean; onChange: (checked: boolean) => void }) {
  const id = useId();
  return (
    <label htmlFor={id} className="flex items-center gap-2 text-sm text-dim">
      <input id={id} type="checkbox" checked={checked} onChange={(event) => onChange(event.target.checked)} className="size-4 accent-violet" />
      Compare with base model
    </label>
  );
}

/** How far the model is on its way into memory; absent once it is there. */
function SessionStrip({ state, onOpen }: { state: SessionState; onOpen: () => void }) {
  return (
    <div role="status" className="empty:hidden">
      {state.kind === "loading" && <Loading words={state.words} />}
      {state.kind === "unloaded" && (
        <Notice tone="attention" className="flex flex-wrap items-center gap-x-4 gap-y-2">
          <span className="min-w-0 flex-1 basis-56">
            <b className="mr-2 font-[570]">Model unloaded.</b>
            <span className="text-dim">{state.reason} The conversation is kept.</span>
          </span>
          <Button size="small" variant="primary" onClick={onOpen}>
            Load again
          </Button>
        </Notice>
      )}
      {state.kind === "failed" && (
        <Notice tone="bad" className="flex flex-wrap items-center gap-x-4 gap-y-2">
          <span className="min-w-0 flex-1 basis-56 wrap-anywhere">
            <b className="mr-2 font-[570]">The model could not be loaded.</b>
            <span className="text-dim">{state.problem}</span>
          </span>
          <Button size="small" onClick={onOpen}>
            Try again
          </Button>
        </Notice>
      )}
    </div>
  );
}

function Loading({ words }: { words: string }) {
  const [since] = useState(() => Date.now());
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.floor((now - since) / 1000);
  return (
    <Notice className="flex items-center gap-3">
      <Spinner />
      <span>
        {words}
        {/* Not for screen readers: it would be read out every second. */}
        {seconds > 1 && <span aria-hidden className="ml-2 text-dim tabular-nums">{durationText(seconds)}</span>}
      </span>
    </Notice>
  );
}

type ComposerProps = { text: string; onText: (text: string) => void; mode: Mode; writing: boolean; ready: boolean; onSend: (text: string) => void; onStop: () => void };

const TALLEST = 220;

/** Enter sends, Shift with Enter begins a new line. What is typed while the model loads is kept. */
function Composer({ text, onText, mode, writing, ready, onSend, onStop }: ComposerProps) {
  const box = useRef<HTMLTextAreaElement>(null);
  const sendable = ready && !writing && text.trim() !== "";

  useLayoutEffect(() => {
    const area = box.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(TALLEST, area.scrollHeight + 2)}px`;
  });

  function send() {
    if (!sendable) return;
    onSend(mode === "chat" ? text.trim() : text);
    // A text that was continued is often changed a little and continued again.
    if (mode === "chat") onText("");
  }

  function pressed(event: KeyboardEvent) {
    // While a word is being composed, as in Japanese, Enter only chooses it.
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  }

  return (
    <form
      aria-label={mode === "chat" ? "Message" : "Text to continue"}
      className="flex items-end gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <Textarea
        ref={box}
        aria-label={mode === "chat" ? "Your message" : "Text to continue"}
        placeholder={mode === "chat" ? "Write a message" : "Beginning of a text"}
        value={text}
        rows={mode === "chat" ? 1 : 4}
        onChange={(event) => onText(event.target.value)}
        onKeyDown={pressed}
        className="min-h-10 resize-none py-2.25"
      />
      {writing ? (
        <Button size="icon" aria-label="Stop" title="Stop" className="size-10" onClick={onStop}>
          <Square aria-hidden className="fill-current" />
        </Button>
      ) : (
        <Button type="submit" variant="primary" size="icon" aria-label="Send" title="Send (Enter)" disabled={!sendable} className="size-10">
          <ArrowUp aria-hidden />
        </Button>
      )}
    </form>
  );
}

type CardAccordionProps = { title: string; note?: string; startsClosed?: boolean; children: ReactNode };

/** A card next to the conversation. On a phone it lies below and starts closed, so that the composer stays near. */
function CardAccordion({ title, note, startsClosed = false, children }: CardAccordionProps) {
  const [open, setOpen] = useState(() => !startsClosed && isWide());
  return (
    <Card>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)} className="group">
        <summary className="flex cursor-pointer list-none items-center gap-1.5 hover:text-white">
          <ChevronRight aria-hidden className="size-3.5 transition-transform duration-150 group-open:rotate-90" />
          <h2 className="text-[13px] font-[590]">{title}</h2>
          {note && <span className="ml-auto text-xs text-dim">{note}</span>}
        </summary>
        <div className="mt-3">{children}</div>
      </details>
    </Card>
  );
}
