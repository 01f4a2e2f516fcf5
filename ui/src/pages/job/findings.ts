import { readSummary } from "@/api/job-summary";
import type { Job } from "@/api/types";
import { countText, counted } from "@/text/numbers";
import { moneyFindings } from "./money-findings";

export type Finding = { key: string; tone: "bad" | "attention" | "plain"; title: string; text: string };

/** What to do about a failure, by its code; the message itself says what happened. */
const ADVICE: Record<string, string> = {
  training_failed: "Read the output below. Resume goes on from the last checkpoint; a changed config needs a new job.",
  too_many_attempts: "The machine may be short of memory, or somebody ended the process. Resume tries again from the last checkpoint.",
  directory_gone: "Its files were removed from the server. Start a new job; this one can only be deleted.",
  not_started: "Check that the machine has room and its GPUs are free, then resume.",
  time_limit: "Resume goes on from the last checkpoint.",
};

const TIMES = ["", "once", "twice"];

const TITLES: Record<string, string> = {
  stalled: "Stalled.",
  degraded: "Degraded.",
  diverging: "Diverging.",
  data_starved: "Waiting for data.",
  throttled: "Slowed down.",
  out_of_memory_soon: "Memory is running out.",
};

/** What somebody should know about a job before looking at its charts, most pressing first. */
export function findingsOf(job: Job, machinesSeen: boolean | undefined): Finding[] {
  const summary = readSummary(job);
  const findings: Finding[] = [];
  if (job.status === "failed") {
    const advice = ADVICE[job.errorCode ?? ""] ?? "Read the output below, then resume or start a new job.";
    findings.push({ key: "failed", tone: "bad", title: "Training failed.", text: `${job.errorMessage ?? "No reason was recorded."} ${advice}` });
  }
  findings.push(...moneyFindings(job, summary));
  if (summary.waiting !== null) findings.push({ key: "waiting", tone: "plain", title: "Waiting.", text: summary.waiting });
  else if (job.status === "queued") findings.push(waiting(job, machinesSeen));
  summary.findings.forEach((finding, index) => {
    const tone = finding.severity === "critical" ? "bad" : finding.severity === "warning" ? "attention" : "plain";
    findings.push({ key: `${finding.kind}-${index}`, tone, title: TITLES[finding.kind] ?? "", text: finding.sentence });
  });
  const refused = summary.marks.findLast((mark) => mark.kind === "applied")?.refused;
  if (refused) findings.push({ key: "refused", tone: "attention", title: "A setting was refused.", text: refused });
  if (summary.restartCount > 0) {
    const times = TIMES[summary.restartCount] ?? `${countText(summary.restartCount)} times`;
    const from = summary.resumedFromStep === null ? "" : `Last time it went on from step ${countText(summary.resumedFromStep)}; steps it repeated are drawn fainter.`;
    findings.push({ key: "resumed", tone: "attention", title: `Resumed ${times}.`, text: from });
  }
  const dropped = Object.entries(summary.dropped).filter(([, count]) => count > 0);
  if (dropped.length > 0) {
    const what = dropped.map(([kind, count]) => counted(count, `${kind} event`)).join(", ");
    findings.push({ key: "dropped", tone: "attention", title: "Some events were lost.", text: `The run could not write ${what}: the disk was full or slow. The training itself is not affected.` });
  }
  if (summary.damagedLines > 0) {
    findings.push({ key: "damaged", tone: "attention", title: "Damaged records.", text: `${counted(summary.damagedLines, "line")} of the run's record could not be read and were left out.` });
  }
  return findings;
}

function waiting(job: Job, machinesSeen: boolean | undefined): Finding {
  if (machinesSeen === false) {
    return { key: "no-worker", tone: "attention", title: "Waiting for a worker.", text: "No worker is running, so nothing starts yet. Start one with “bloom up” on the machine that should train; the job starts by itself." };
  }
  if (job.target !== "local") {
    return { key: "queued", tone: "plain", title: "In the queue.", text: "A machine is rented for it in a moment." };
  }
  const ahead = (job.queuePosition ?? 1) - 1;
  const text = ahead === 0 ? "It is next: it starts as soon as a device is free." : `${counted(ahead, "job")} ${ahead === 1 ? "is" : "are"} ahead of it.`;
  return { key: "queued", tone: "plain", title: "In the queue.", text };
}
