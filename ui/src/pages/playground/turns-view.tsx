import { RotateCcw } from "lucide-react";
import { useLayoutEffect, useRef } from "react";
import { Button, CopyButton } from "@/components/button";
import { cn } from "@/components/class-names";
import { type Answer, tokensPerSecond, type Turn } from "./conversation";

type TurnsViewProps = { turns: readonly Turn[]; names: Record<string, string>; writing: boolean; onRetry?: () => void };

/** The turns. Follows what is being written, unless somebody has scrolled up to read. */
export function TurnsView({ turns, names, writing, onRetry }: TurnsViewProps) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    const area = box.current;
    if (area && atEnd.current) area.scrollTop = area.scrollHeight;
  });

  return (
    <div
      ref={box}
      role="log"
      aria-label="Conversation"
      // Screen readers cannot follow single tokens; whole answers are announced below.
      aria-live="off"
      // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
      tabIndex={0}
      onScroll={({ currentTarget: area }) => {
        atEnd.current = area.scrollHeight - area.scrollTop - area.clientHeight < 40;
      }}
      className="min-h-48 flex-1 space-y-5 overflow-y-auto lg:min-h-0"
    >
      {turns.map((turn, index) => (
        // Turns have no name of their own, and only ever join at the end.
        // oxlint-disable-next-line react/no-array-index-key
        <TurnView key={index} turn={turn} names={names} onRetry={index === turns.length - 1 && !writing ? onRetry : undefined} />
      ))}
      <FinishedAnswers turns={turns} names={names} />
    </div>
  );
}

/** Whole answers for those who listen. */
function FinishedAnswers({ turns, names }: Pick<TurnsViewProps, "turns" | "names">) {
  const last = turns.at(-1);
  const answers = Object.entries(last?.answers ?? {});
  const finished = answers.every(([, answer]) => answer.state !== "writing");
  const announcement = finished ? answers.map(([model, answer]) => `${names[model] ?? model}: ${answer.problem ?? answer.text}`).join(" ") : "";
  return (
    <p role="status" className="sr-only">
      {announcement}
    </p>
  );
}

function TurnView({ turn, names, onRetry }: { turn: Turn; names: Record<string, string>; onRetry?: () => void }) {
  const answers = Object.entries(turn.answers);
  return (
    <article className="space-y-2.5">
      {turn.mode === "chat" && (
        <p className="ml-auto w-fit max-w-[85%] rounded-2xl rounded-br-md bg-violet/22 px-3.5 py-2 wrap-anywhere whitespace-pre-wrap">
          <span className="sr-only">You: </span>
          {turn.prompt}
        </p>
      )}
      <div className={cn("grid gap-2.5", answers.length > 1 && "md:grid-cols-2")}>
        {answers.map(([model, answer]) => (
          <AnswerView key={model} name={names[model] ?? model} tuned={model !== "base"} answer={answer} before={turn.mode === "complete" ? turn.prompt : ""} />
        ))}
      </div>
      {onRetry && (
        <Button variant="ghost" size="small" onClick={onRetry}>
          <RotateCcw aria-hidden />
          Regenerate
        </Button>
      )}
    </article>
  );
}

type AnswerViewProps = { name: string; tuned: boolean; answer: Answer; before: string };

function AnswerView({ name, tuned, answer, before }: AnswerViewProps) {
  const writing = answer.state === "writing";
  const speed = tokensPerSecond(answer);
  // A base model may answer with hundreds of empty lines.
  const shown = answer.text.trim() === "" ? "" : answer.text.replaceAll(/\n\s*\n(\s*\n)+/g, "\n\n");
  return (
    <section aria-label={`Answer of ${name}`} aria-busy={writing} className={cn("flex min-w-0 flex-col rounded-card border px-3.5 py-2.5", tuned ? "border-violet-soft/25 bg-violet/7" : "border-line bg-white/3")}>
      <div className="mb-1 flex items-center gap-2 text-xs">
        <span className={cn("font-[570]", tuned ? "text-violet-soft" : "text-dim")}>{name}</span>
        <span className="ml-auto text-faint tabular-nums">{speed === null ? null : `${speed < 10 ? speed.toFixed(1) : Math.round(speed)} tokens/s`}</span>
      </div>
      <p className="min-h-6 wrap-anywhere whitespace-pre-wrap">
        {before && <span className="text-dim">{before}</span>}
        <span className={before ? "text-violet-soft" : undefined}>{shown}</span>
        {writing && <span aria-hidden className="ml-0.5 inline-block h-4 w-1.75 translate-y-0.5 animate-pulse rounded-[2px] bg-violet-soft" />}
        {!writing && shown === "" && answer.problem === null && <span className="block text-dim">{answer.state === "stopped" ? "Stopped before the first token." : "The model returned an empty answer."}</span>}
      </p>
      {answer.problem && (
        <p role="alert" className="mt-1 text-sm wrap-anywhere text-danger-soft">
          {answer.problem}
        </p>
      )}
      {!writing && answer.text !== "" && (
        <div className="mt-auto flex items-center gap-2 pt-2 text-xs text-faint">
          {answer.state === "stopped" && <span>Stopped.</span>}
          {answer.cut && <span>Truncated at the max tokens setting.</span>}
          <CopyButton text={answer.text} label={`Copy the answer of ${name}`} className="ml-auto" />
        </div>
      )}
    </section>
  );
}
