/** A typed reading of what a job's run says about itself, which the job carries as free JSON. */
import { type Json, measured, number, record, text } from "./free-json";
import type { Job } from "./types";

function numbersIn(value: unknown): Record<string, number> {
  return Object.fromEntries(Object.entries(record(value)).flatMap(([name, item]) => (typeof item === "number" ? [[name, item]] : [])));
}

export type Mark = {
  kind: string;
  attempt: number;
  step: number;
  settings: Record<string, number>;
  refused: string | null;
  /** Of a budget's warning: how much of which budget is spent, in a sentence. */
  warning: { percent: number; scope: string; sentence: string } | null;
};

/** What TrainCard's diagnosis found wrong with the run: the same as on its card. */
export type RunFinding = { kind: string; severity: string; sentence: string };

export type Summary = {
  phase: string | null;
  /** Why nothing runs yet, where somebody knows. */
  waiting: string | null;
  step: number | null;
  totalSteps: number | null;
  epoch: number | null;
  epochs: number | null;
  etaSeconds: number | null;
  restartCount: number;
  resumedFromStep: number | null;
  values: Record<string, number>;
  system: Record<string, number>;
  facts: Json;
  dropped: Record<string, number>;
  damagedLines: number;
  error: { type: string | null; message: string | null; advice: string | null } | null;
  marks: Mark[];
  findings: RunFinding[];
};

export function readSummary(job: Pick<Job, "summary">): Summary {
  const summary = job.summary;
  const error = summary.error ? record(summary.error) : null;
  return {
    phase: text(summary.phase),
    waiting: text(summary.waiting),
    step: number(summary.step),
    totalSteps: number(summary.totalSteps),
    epoch: number(summary.epoch),
    epochs: number(summary.epochs),
    etaSeconds: number(summary.etaSeconds),
    restartCount: number(summary.restartCount) ?? 0,
    resumedFromStep: number(summary.resumedFromStep),
    values: Object.fromEntries(
      Object.entries(record(summary.values)).flatMap(([name, item]) => {
        const value = measured(record(item).value);
        return value === null ? [] : [[name, value]];
      }),
    ),
    system: numbersIn(summary.system),
    facts: record(summary.facts),
    dropped: numbersIn(summary.dropped),
    damagedLines: number(summary.damagedLines) ?? 0,
    error: error && { type: text(error.type), message: text(error.message), advice: text(error.advice) },
    marks: Array.isArray(summary.marks) ? summary.marks.map(readMark) : [],
    findings: Array.isArray(summary.findings) ? summary.findings.map(readFinding) : [],
  };
}

function readFinding(given: unknown): RunFinding {
  const finding = record(given);
  return { kind: text(finding.kind) ?? "", severity: text(finding.severity) ?? "", sentence: text(finding.sentence) ?? "" };
}

function readMark(given: unknown): Mark {
  const mark = record(given);
  return {
    kind: text(mark.kind) ?? "",
    attempt: number(mark.attempt) ?? 1,
    step: number(mark.step) ?? 0,
    settings: numbersIn(mark.settings),
    refused: mark.refused ? String(mark.refused) : null,
    warning: mark.kind === "budget" ? { percent: number(mark.percent) ?? 0, scope: text(mark.scope) ?? "", sentence: text(mark.sentence) ?? "" } : null,
  };
}

/** The share of the work that is done, from 0 to 1; null while nobody knows how much there is. */
export function progressOf(job: Pick<Job, "summary" | "status">): number | null {
  if (job.status === "completed") return 1;
  const { step, totalSteps } = readSummary(job);
  if (step === null || !totalSteps) return null;
  return Math.min(1, step / totalSteps);
}
