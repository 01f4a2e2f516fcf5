/** Typed readings of what a job carries as free JSON: what its run says about itself, and its plan. */
import type { Job } from "./types";

type Json = Record<string, unknown>;

const record = (value: unknown): Json => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {});
const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
const text = (value: unknown): string | null => (typeof value === "string" ? value : null);

function numbersIn(value: unknown): Record<string, number> {
  return Object.fromEntries(Object.entries(record(value)).flatMap(([name, item]) => (typeof item === "number" ? [[name, item]] : [])));
}

export type Mark = {
  kind: string;
  attempt: number;
  step: number;
  settings: Record<string, number>;
  refused: string | null;
};

/** What TrainCard's diagnosis found wrong with the run: the same as on its card. */
export type RunFinding = { kind: string; severity: string; sentence: string };

export type Summary = {
  phase: string | null;
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
    step: number(summary.step),
    totalSteps: number(summary.totalSteps),
    epoch: number(summary.epoch),
    epochs: number(summary.epochs),
    etaSeconds: number(summary.etaSeconds),
    restartCount: number(summary.restartCount) ?? 0,
    resumedFromStep: number(summary.resumedFromStep),
    values: Object.fromEntries(
      Object.entries(record(summary.values)).flatMap(([name, item]) => {
        const value = number(record(item).value);
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
  };
}

export const MEMORY_KINDS = ["weights", "gradients", "optimizer", "activations", "overhead"] as const;
export type MemoryKind = (typeof MEMORY_KINDS)[number];

export type Plan = {
  device: string;
  placementText: string | null;
  precision: string;
  precisionReason: string | null;
  parameters: number | null;
  memory: Record<MemoryKind, number>;
  memoryTotal: number;
  memoryLimit: number;
  tokensPerStep: number | null;
  tokensPerSecond: number | null;
  steps: number | null;
  seconds: number | null;
  assumptions: string[];
};

/** Null for a plan this page does not understand: it may come from a newer server. */
export function readPlan(given: Json | null | undefined): Plan | null {
  const plan = record(given);
  const total = number(plan.memory_total_bytes);
  const limit = number(plan.memory_limit_bytes);
  if (total === null || limit === null) return null;
  const memory = record(plan.memory);
  const kinds = MEMORY_KINDS.map((kind) => [kind, number(memory[kind]) ?? 0] as const);
  return {
    device: text(plan.device) ?? "",
    placementText: text(plan.placement_text),
    precision: text(plan.precision) ?? "",
    precisionReason: text(plan.precision_reason),
    parameters: number(plan.parameters),
    memory: Object.fromEntries(kinds) as Record<MemoryKind, number>,
    memoryTotal: total,
    memoryLimit: limit,
    tokensPerStep: number(plan.tokens_per_step),
    tokensPerSecond: number(plan.tokens_per_second),
    steps: number(plan.steps),
    seconds: number(plan.seconds),
    assumptions: Array.isArray(plan.assumptions) ? plan.assumptions.map(String) : [],
  };
}

/** The share of the work that is done, from 0 to 1; null while nobody knows how much there is. */
export function progressOf(job: Pick<Job, "summary" | "status">): number | null {
  if (job.status === "completed") return 1;
  const { step, totalSteps } = readSummary(job);
  if (step === null || !totalSteps) return null;
  return Math.min(1, step / totalSteps);
}
