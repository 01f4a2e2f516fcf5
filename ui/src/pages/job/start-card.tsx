/** How a rented machine starts: its steps with seconds, what it has cost, the last log lines, and what happens next. */
import { Check, Circle, LoaderCircle, X } from "lucide-react";
import { isResting } from "@/api/jobs";
import { useProviderTitle } from "@/api/providers";
import type { Job, StartStage, StartState } from "@/api/types";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { useNow } from "@/components/time-ago";
import { durationText, moneyText } from "@/text/numbers";

const TITLES: Record<string, string> = {
  requested: "Machine requested",
  machine: "Machine up",
  packages: "Packages",
  data: "Data",
  start: "Start",
};

/** Absent for jobs on this machine. After the first step only the log of the start is left, folded. */
export function StartCard({ job }: { job: Job }) {
  const { start } = job.summary;
  const isOver = job.summary.step !== null || (isResting(job.status) && start?.state !== "failed");
  const now = useNow(start !== null && !isOver && start.state !== "failed");
  const providerTitle = useProviderTitle();
  if (start === null || start.attempt !== job.attempt) return null;
  const title = providerTitle(start.provider);
  if (isOver) return <FoldedLog start={start} title={title} />;
  const failed = start.state === "failed";
  const { cost } = job.summary;
  return (
    <Card aria-label="Start of the machine">
      <div className="mb-3 flex flex-wrap items-end justify-between gap-x-6 gap-y-2">
        <h2 className="text-[13px] font-[590]">{failed ? `The start on ${title} failed` : `Starting on ${title}`}</h2>
        <dl className="flex gap-x-6 text-sm">
          {!failed && <Figure name="Elapsed" value={durationText(Math.max(0, now / 1000 - start.began_at))} />}
          {cost && <Figure name="Cost so far" value={moneyText(cost.so_far)} />}
        </dl>
      </div>
      <ol className="grid gap-x-6 gap-y-2.5 sm:grid-cols-5">
        {start.stages.map((stage) => (
          <Step key={stage.name} stage={stage} now={now} />
        ))}
      </ol>
      {/* The findings above it say why a failed job did not start; here is the reason of a start that is tried again. */}
      {start.failure && job.status !== "failed" && (
        <p role="alert" className="mt-3 rounded-control border border-danger/35 bg-danger/10 px-3 py-2 text-sm wrap-anywhere text-danger-soft">
          {start.failure}
        </p>
      )}
      {start.log.length > 0 && <Log start={start} />}
      {!failed && <p className="mt-2.5 text-xs text-faint">If the machine is silent for {durationText(start.timeout_seconds)}, it is terminated, and this page says why. This log stays with the job.</p>}
    </Card>
  );
}

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt className="text-xs text-dim">{name}</dt>
      <dd className="font-[590] tabular-nums">{value}</dd>
    </div>
  );
}

const ICONS = { done: Check, failed: X, running: LoaderCircle, waiting: Circle };
const ICON_CLASSES = {
  done: "bg-success text-rail",
  failed: "bg-danger text-rail",
  running: "text-teal-soft [&_svg]:animate-spin",
  waiting: "text-faint",
};
const SAID = { done: "done", failed: "failed", running: "running", waiting: "not begun" };

function stateOf(stage: StartStage): keyof typeof ICONS {
  return stage.state === "done" || stage.state === "failed" || stage.state === "running" ? stage.state : "waiting";
}

function Step({ stage, now }: { stage: StartStage; now: number }) {
  const state = stateOf(stage);
  const Icon = ICONS[state];
  const seconds = stage.seconds ?? (state === "running" && stage.began_at !== null ? Math.max(0, now / 1000 - stage.began_at) : null);
  return (
    <li className="flex min-w-0 gap-2.5 sm:block">
      <div className="flex shrink-0 items-center gap-2 sm:mb-1.5">
        <span className={cn("grid size-5 shrink-0 place-items-center rounded-full [&_svg]:size-3.5", ICON_CLASSES[state])}>
          <Icon aria-hidden />
        </span>
        <span aria-hidden className={cn("hidden h-0.5 flex-1 rounded-full sm:block", state === "done" ? "bg-success" : "bg-line-strong")} />
      </div>
      <div className="min-w-0 flex-1">
        <p className={cn("flex items-baseline justify-between gap-2 text-sm", state === "waiting" ? "text-dim" : "font-[540]")}>
          <span>
            {TITLES[stage.name] ?? stage.name}
            <span className="sr-only">, {SAID[state]}</span>
          </span>
          <span className="tabular-nums">{seconds === null ? "" : durationText(seconds)}</span>
        </p>
        {stage.text && <p className="text-xs wrap-anywhere text-dim">{stage.text}</p>}
      </div>
    </li>
  );
}

function Log({ start }: { start: StartState }) {
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
    <section aria-label="Log of the start" tabIndex={0} className="mt-3 max-h-52 overflow-auto rounded-control bg-rail px-3 py-2 font-mono text-2xs text-code">
      {start.log.map((line, position) => (
        <p key={`${position}-${line.seconds}`} className="flex gap-3 whitespace-pre-wrap">
          <span className="w-11 shrink-0 text-right text-faint tabular-nums">{Math.round(line.seconds)} s</span>
          <span className="w-16 shrink-0 text-teal-soft max-sm:hidden">{line.stage}</span>
          <span className="min-w-0 wrap-anywhere">{line.text}</span>
        </p>
      ))}
    </section>
  );
}

function FoldedLog({ start, title }: { start: StartState; title: string }) {
  if (start.log.length === 0) return null;
  return (
    <details className="rounded-card border border-line bg-card px-4 py-2.5">
      <summary className="cursor-pointer text-sm text-dim">Start of the machine at {title}: log</summary>
      <Log start={start} />
    </details>
  );
}
