/** What a person should know about a job: failures, warnings, restarts, budgets. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleX, Info, TriangleAlert } from "lucide-react";
import { useState } from "react";
import { machinesQuery } from "@/api/jobs";
import type { Job, RunSummary } from "@/api/types";
import { cn } from "@/components/class-names";
import { Badge, Notice } from "@/components/notice";
import { counted, countText } from "@/text/numbers";
import { causeText, withLocalTimes } from "@/text/run-words";

export type Finding = { key: string; tone: "bad" | "attention" | "plain"; title: string; text: string; next?: string };

/** What to do about a failure, by its code; the message itself says what happened. */
const ADVICE: Record<string, string> = {
  script_failed: "Read the logs. “Duplicate and edit” opens the script, so that you can correct it and run it again. “Resume” runs the same script once more.",
  training_failed: "Read the logs. Resume the job to continue from the last checkpoint, or start a new job to change the config.",
  too_many_attempts: "The machine may have run out of memory, or someone ended the process. Resume the job to try again from the last checkpoint.",
  directory_gone: "The job’s files were removed from the server. Start a new job; this job can only be deleted.",
  time_limit: "Resume the job to continue from the last checkpoint.",
};

/** The same for codes of jobs that did not start; for others the message says what to do. */
const START_ADVICE: Record<string, string> = {
  bad_credentials: "Then resume the job.",
  not_started: "Check that the machine has free space and free GPUs, then resume the job.",
  quota: "Then resume the job, or move it to another machine.",
};

/** With these codes a job ends before anything of it runs, on every machine. */
const BEFORE_THE_START = new Set(["not_started", "secret_missing", "secret_unreadable", "secrets_too_large"]);

const FAILED = { script: "The script failed.", train: "Training failed." };

const TIMES = ["", "once", "twice"];

/** What somebody should know about a job before looking at its charts, most pressing first. */
export function findingsOf(job: Job, machinesSeen: boolean | undefined): Finding[] {
  const { summary } = job;
  const findings: Finding[] = [];
  if (job.status === "failed") {
    const started = isStarted(job);
    const title = started ? FAILED[job.kind === "script" ? "script" : "train"] : "The job did not start.";
    findings.push({ key: "failed", tone: "bad", title, text: failureText(job), next: failureAdvice(job, started) });
  }
  if (job.error_code === "stopped_by_rule" && job.status !== "failed") {
    findings.push({ key: "stopped", tone: "attention", title: "Stopped early.", text: job.error_message ?? "" });
  }
  findings.push(...moneyFindings(job, summary));
  if (summary.waiting !== null) findings.push({ key: "waiting", tone: "plain", title: "Waiting.", text: summary.waiting });
  else if (job.status === "queued") findings.push(waiting(job, machinesSeen));
  summary.findings.forEach((finding, index) => {
    const tone = finding.severity === "critical" ? "bad" : finding.severity === "warning" ? "attention" : "plain";
    findings.push({ key: `${finding.kind}-${index}`, tone, title: `${finding.title}.`, text: `${withLocalTimes(finding.sentence, finding.since)} ${finding.next_step}`.trimEnd() });
  });
  summary.alerts.forEach(({ level, title, text, step }, index) => {
    const tone = level === "error" ? "bad" : level === "warning" ? "attention" : "plain";
    const where = step === null || text.includes("at step") ? "" : `Step ${countText(step)}.`;
    findings.push({ key: `alert-${index}`, tone, title: /[.!?]$/.test(title) ? title : `${title}.`, text: `${text} ${where}`.trim() });
  });
  const refused = Object.entries(summary.marks.findLast((mark) => mark.kind === "applied")?.refused ?? {});
  if (refused.length > 0) {
    const reasons = refused.map(([setting, reason]) => `${setting}: ${reason}`).join("; ");
    findings.push({ key: "refused", tone: "attention", title: "A setting was refused.", text: reasons });
  }
  if (summary.restart_count > 0) {
    const times = TIMES[summary.restart_count] ?? `${countText(summary.restart_count)} times`;
    const from = summary.resumed_from_step === null ? "" : `The last attempt started from step ${countText(summary.resumed_from_step)}. Repeated steps are drawn fainter in the charts.`;
    // A pause resumes as well as a crash: alone it warns of nothing.
    findings.push({ key: "resumed", tone: "plain", title: `Resumed ${times}.`, text: `${from} The logs say why each attempt ended.`.trimStart() });
  }
  const dropped = Object.entries(summary.dropped).filter(([, count]) => count > 0);
  if (dropped.length > 0) {
    const what = dropped.map(([kind, count]) => counted(count, `${kind} event`)).join(", ");
    findings.push({ key: "dropped", tone: "attention", title: "Some events were lost.", text: `The run could not write ${what}: the disk was full or slow. The training itself is not affected.` });
  }
  if (summary.damaged_lines > 0) {
    findings.push({ key: "damaged", tone: "attention", title: "Damaged records.", text: `Skipped ${counted(summary.damaged_lines, "unreadable line")} in the run’s event files.` });
  }
  return findings;
}

/** Whether the newest attempt of a failed job ran anything of it. */
function isStarted({ attempt, error_code: code, start_time: startTime, summary: { start } }: Job): boolean {
  const rentingFailed = start !== null && start.attempt === attempt && start.state === "failed";
  return startTime !== null && !rentingFailed && !BEFORE_THE_START.has(code ?? "");
}

/** What happened, without the advice that the message of a training may end with. */
function failureText({ error_message: message, summary }: Job): string {
  const advice = summary.error?.advice;
  return (advice && message?.endsWith(advice) ? message.slice(0, -advice.length).trimEnd() : message) || "No reason was recorded.";
}

function failureAdvice({ failed_on_data: failedOnData, kind, error_code: code, summary }: Job, started: boolean): string {
  if (failedOnData) return "Change the data or the config, then start again: “Duplicate and edit” opens the form as it was.";
  if (summary.error?.advice) return summary.error.advice;
  if (!started) return START_ADVICE[code ?? ""] ?? "";
  return kind === "run" ? "Read the logs." : (ADVICE[code ?? ""] ?? "Read the logs, then resume the job or start a new one.");
}

function waiting(job: Job, machinesSeen: boolean | undefined): Finding {
  if (machinesSeen === false) {
    return { key: "no-worker", tone: "attention", title: "Waiting for a worker.", text: "No worker is running. Run “bloom up” on the machine that should train; the job then starts automatically." };
  }
  if (job.target !== "local") {
    return { key: "queued", tone: "plain", title: "In the queue.", text: "An instance will be rented for this job shortly." };
  }
  const ahead = (job.queue_position ?? 1) - 1;
  const text = ahead === 0 ? "This job is next. It starts when a device is free." : `${counted(ahead, "job")} ${ahead === 1 ? "is" : "are"} ahead of this job.`;
  return { key: "queued", tone: "plain", title: "In the queue.", text };
}

/** Codes with which a job is paused by its limits; its message says which one, and what to do. */
const LIMITS: Record<string, string> = { budget: "Paused: the budget is spent.", time_limit: "Paused: the time limit is reached." };

/** What budgets have to say: the last warning of each, and that a job was paused by one. */
function moneyFindings(job: Pick<Job, "status" | "error_code" | "error_message">, { marks }: Pick<RunSummary, "marks">): Finding[] {
  const stopped = (job.status === "paused" || job.status === "pausing") && job.error_code !== null ? LIMITS[job.error_code] : undefined;
  if (stopped) return [{ key: "limit", tone: "bad", title: stopped, text: job.error_message ?? "" }];
  const last = new Map(marks.filter(({ kind }) => kind === "budget").map((mark) => [mark.scope, mark] as const));
  return [...last.values()].map(({ percent, scope, sentence }) => ({
    key: `budget-${scope}`,
    tone: (percent ?? 0) >= 100 ? "bad" : (percent ?? 0) >= 80 ? "attention" : "plain",
    title: "Budget.",
    text: sentence ?? "",
  }));
}

/** The findings of a job as they are now. */
export function useFindings(job: Job): Finding[] {
  const machines = useQuery({ ...machinesQuery, enabled: job.status === "queued", refetchInterval: 5_000 });
  return findingsOf(job, machines.data && machines.data.items.length > 0);
}

/** On every tab, so that a finding cannot hide. */
export function FindingsBadge({ findings }: { findings: Finding[] }) {
  const bad = findings.filter(({ tone }) => tone === "bad").length;
  const count = findings.filter(({ tone }) => tone !== "plain").length;
  if (count === 0) return null;
  return (
    <Link to="." search={{}} className="inline-flex tracking-normal">
      <Badge tone={bad > 0 ? "bad" : "attention"}>
        <TriangleAlert aria-hidden className="size-3" />
        {counted(count, bad > 0 ? "problem" : "warning")}
      </Badge>
    </Link>
  );
}

const VISIBLE = 4;
const FRAMES = { bad: "border-danger/40 bg-danger/10", attention: "border-warning/30 bg-warning/7", plain: "border-line-strong bg-white/4" };

/** At the top of the overview, and of every tab of a failed job: one row each, the worst first; more than four fold. */
export function FindingsList({ findings, job, className }: { findings: Finding[]; job: Job; className?: string }) {
  const [all, setAll] = useState(false);
  const hidden = findings.length - VISIBLE;
  const worst = findings.some(({ tone }) => tone === "bad") ? "bad" : findings.some(({ tone }) => tone === "attention") ? "attention" : "plain";
  return (
    <div role="status" className={cn("divide-y divide-line rounded-card border empty:hidden", FRAMES[worst], className)}>
      {(all ? findings : findings.slice(0, VISIBLE)).map((finding) => (
        <FindingRow key={finding.key} finding={finding} job={job} />
      ))}
      {hidden > 0 && (
        <button type="button" aria-expanded={all} onClick={() => setAll(!all)} className="w-full px-3.5 py-1.5 text-left text-sm text-violet-soft underline-offset-3 hover:underline">
          {all ? "Show fewer" : `${countText(hidden)} more`}
        </button>
      )}
    </div>
  );
}

const ICONS = { bad: CircleX, attention: TriangleAlert, plain: Info };
const COLOURS = { bad: "text-danger-soft", attention: "text-warning", plain: "text-dim" };

function FindingRow({ finding: { key, tone, title, text, next }, job }: { finding: Finding; job: Job }) {
  const Icon = ICONS[tone];
  const failed = key === "failed";
  const likely = failed && job.summary.error && causeText(job.summary.error);
  return (
    <article className="grid grid-cols-[auto_minmax(0,1fr)] items-baseline gap-x-2.5 px-3.5 py-1.5">
      <Icon aria-hidden className={cn("size-[15px] translate-y-0.5", COLOURS[tone])} />
      <div className="wrap-anywhere">
        <b className="mr-1.5 font-[570]">{title}</b>
        <span className="text-dim">{text}</span>
        {failed && job.error_code && <code className="ml-2 font-mono text-xs text-danger-soft">{job.error_code}</code>}
        {(likely || next) && (
          <p className="mt-1">
            {likely && `Likely cause: ${likely}. `}
            {next}
          </p>
        )}
        {failed && job.summary.error?.traceback && <StackTrace text={job.summary.error.traceback} />}
      </div>
    </article>
  );
}

/** Where the exception came from. */
function StackTrace({ text }: { text: string }) {
  return (
    <details className="mt-1.5">
      <summary className="cursor-pointer text-xs text-dim">Stack trace</summary>
      <pre
        // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
        tabIndex={0}
        aria-label="Stack trace"
        className="mt-1.5 max-h-72 overflow-auto rounded-md bg-black/25 p-2.5 font-mono text-xs"
      >
        {text.trimEnd()}
      </pre>
    </details>
  );
}

type RunWarningsProps = { job: Pick<Job, "warnings" | "warnings_left_out">; className?: string };

/** What the run itself warned of: rows it could not use, examples it cut, a template it replaced. */
export function RunWarnings({ job, className }: RunWarningsProps) {
  const { warnings, warnings_left_out: warningsLeftOut } = job;
  if (warnings.length === 0) return null;
  const errors = warnings.filter((warning) => warning.level === "error").length;
  const title = [errors > 0 && counted(errors, "error"), warnings.length > errors && counted(warnings.length - errors, "warning")].filter(Boolean).join(", ");
  return (
    <Notice role="region" aria-label="Run warnings" tone={errors > 0 ? "bad" : "attention"} className={className}>
      <h2 className="text-sm font-[570]">{title}</h2>
      <ul className="mt-1 grid gap-1 text-dim">
        {warnings.map(({ level, line }) => (
          <li key={line} className={cn("wrap-anywhere", level === "error" && "text-danger-soft")}>
            {line}
          </li>
        ))}
      </ul>
      {warningsLeftOut > 0 && <p className="mt-1 text-xs text-faint">{counted(warningsLeftOut, "more message")} in the output.</p>}
    </Notice>
  );
}
