/** Typed readers for the free JSON of a job: its summary, its marks and findings, and what it costs. A value of the wrong type reads as null or empty. */
import { numberOf } from "@/text/numbers";
import type { Job } from "./types";

export type Json = Record<string, unknown>;

export const record = (value: unknown): Json => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {});
export const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
/** What a run measured: a number, or one of the texts that JSON has for NaN and the infinities. */
export const measured = (value: unknown): number | null => (typeof value === "number" || value === "NaN" || value === "Infinity" || value === "-Infinity" ? numberOf(value) : null);
export const text = (value: unknown): string | null => (typeof value === "string" ? value : null);
export const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);

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
type RunFinding = { kind: string; severity: string; sentence: string };

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

export type Cost = {
  soFar: number;
  hourly: number;
  estimated: { low: number; likely: number; high: number } | null;
  limit: number | null;
  provider: string;
  gpu: string | null;
  gpus: number;
  region: string | null;
  kind: string | null;
  billedSeconds: number;
  running: boolean;
  /** What the service says of the machine. */
  detail: string | null;
  page: string | null;
};

export function readCost(job: Pick<Job, "summary">): Cost | null {
  const cost = record(job.summary.cost);
  const soFar = number(cost.so_far);
  const provider = text(cost.provider);
  if (soFar === null || provider === null) return null;
  const estimated = record(cost.estimated);
  const [low, likely, high] = [number(estimated.low), number(estimated.likely), number(estimated.high)];
  return {
    soFar,
    hourly: number(cost.hourly) ?? 0,
    estimated: low === null || likely === null || high === null ? null : { low, likely, high },
    limit: number(cost.limit),
    provider,
    gpu: text(cost.gpu),
    gpus: number(cost.gpus) ?? 1,
    region: text(cost.region),
    kind: text(cost.kind),
    billedSeconds: number(cost.billed_seconds) ?? 0,
    running: cost.running === true,
    detail: text(cost.detail),
    page: text(cost.page),
  };
}
