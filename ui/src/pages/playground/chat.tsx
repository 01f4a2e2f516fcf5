import { MessageSquareText, Trash2 } from "lucide-react";
import { useEffect, useId, useState } from "react";
import type { Source } from "@/api/playground";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { EmptyState } from "@/components/empty-state";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { countText } from "@/text/numbers";
import { CodePanel } from "./code-panel";
import { Composer } from "./composer";
import type { Mode } from "./conversation";
import { type PlaygroundSettings, loadSettings, saveSettings } from "./saved-settings";
import { mistakesIn } from "./sampling";
import { SamplingFields } from "./sampling-fields";
import { SessionStrip } from "./session-strip";
import { CardAccordion } from "./card-accordion";
import { TurnsView } from "./turns-view";
import { useConversation } from "./use-conversation";
import { useSession } from "./use-session";

const NAMES: Record<string, string> = { base: "Base", tuned: "Tuned", model: "Model" };

/** One conversation with one loaded model, or with it and its base at once. */
export function Chat({ source, storageKey }: { source: Source; storageKey: string }) {
  const { state, open } = useSession(source);
  const [settings, setSettings] = useState(loadSettings);
  useEffect(() => saveSettings(settings), [settings]);
  const session = state.kind === "ready" ? state.session : null;
  const available = session?.models ?? [];
  const models = settings.sideBySide ? available : available.filter((model) => model !== "base");
  const conversation = useConversation(storageKey, { sessionId: session?.job.id ?? null, models, sampling: settings.sampling });
  const mode: Mode = settings.mode;
  const sound = Object.keys(mistakesIn(settings.sampling)).length === 0;
  const set = (change: Partial<PlaygroundSettings>) => setSettings((kept) => ({ ...kept, ...change }));

  return (
    <div className="grid items-start gap-3.5 lg:grid-cols-[minmax(0,1fr)_20rem]">
      <Card className="lg:h-[calc(100dvh-12.5rem)] lg:min-h-120">
        <Tabs value={mode} onValueChange={(next) => set({ mode: next as Mode })} className="flex h-full flex-col gap-3">
          <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
            <TabList aria-label="How to ask">
              <Tab value="chat">Chat</Tab>
              <Tab value="complete">Complete</Tab>
            </TabList>
            {available.includes("base") && <SideBySide checked={settings.sideBySide} onChange={(sideBySide) => set({ sideBySide })} />}
            <Button variant="ghost" size="small" className="ml-auto" disabled={conversation.turns.length === 0} onClick={conversation.clear}>
              <Trash2 aria-hidden />
              Clear
            </Button>
          </div>
          <TabPanel value={mode} tabIndex={-1} className="mt-0 flex min-h-0 flex-1 flex-col gap-3">
            <SessionStrip state={state} onOpen={open} />
            {session?.chatTemplate === false && mode === "chat" && <p className="text-xs text-dim">This model has no chat template: what you write is put before it as plain text. “Complete” shows more of what it can do.</p>}
            {conversation.turns.length === 0 ? (
              <div className="grid flex-1 place-items-center">
                <EmptyState icon={MessageSquareText} title={mode === "chat" ? "Ask it something." : "Begin a text, and let it go on."}>
                  {available.includes("base") ? "Both answer at once: the model as it was, and the model as you tuned it." : "It answers token by token. What is said stays in this tab."}
                </EmptyState>
              </div>
            ) : (
              <TurnsView turns={conversation.turns} names={NAMES} writing={conversation.writing} onRetry={session && sound ? conversation.retry : undefined} />
            )}
            <div className="max-lg:sticky max-lg:bottom-0 max-lg:-mx-4 max-lg:-mb-3.5 max-lg:rounded-b-card max-lg:border-t max-lg:border-line max-lg:bg-card max-lg:px-4 max-lg:py-3">
              <Composer mode={mode} writing={conversation.writing} ready={session !== null && sound} onSend={(text) => conversation.ask(mode, text)} onStop={conversation.stop} />
              {!sound && <p className="mt-1.5 text-xs text-danger-soft">One of the settings cannot be sent. Correct it first.</p>}
            </div>
          </TabPanel>
        </Tabs>
      </Card>
      <div className="grid gap-3.5">
        <CardAccordion title="Settings" note={session?.contextLength ? `context ${countText(session.contextLength)} tokens` : undefined}>
          <SamplingFields texts={settings.sampling} chat={mode === "chat"} onChange={(sampling) => set({ sampling })} />
        </CardAccordion>
        {session && (
          <CardAccordion title="Use it from code" startsClosed>
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
      Base beside it
    </label>
  );
}
