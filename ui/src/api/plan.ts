/** A typed reading of a plan: what a run needs, where it goes, and how fast it should be. */
import { type Json, number, record, text, texts } from "./job-summary";

export const MEMORY_KINDS = ["weights", "gradients", "optimizer", "activations", "overhead"] as const;
export type MemoryKind = (typeof MEMORY_KINDS)[number];

/** One memory: what is in it at its fullest, and how much may be. */
export type MemoryUse = { name: "GPU" | "Host"; kinds: Record<MemoryKind, number>; total: number; limit: number };

/** A part of a step, and how many of its seconds each part of the machine is busy. */
export type Phase = { name: string; seconds: number; compute: number; link: number; host: number };

export type Plan = {
  device: string;
  placementText: string | null;
  precision: string;
  precisionReason: string | null;
  parameters: number | null;
  trainedParameters: number | null;
  /** The GPU's first; a CPU trains in the host's alone. */
  memories: MemoryUse[];
  /** What torch should reserve on the GPU; the total also includes the driver's own share. */
  gpuReserved: number | null;
  tokensPerStep: number | null;
  tokensPerSecond: number | null;
  stepSeconds: number | null;
  phases: Phase[];
  limitedBy: string | null;
  /** What limits it and what would help, in sentences. */
  limits: string[];
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
  const device = text(plan.device) ?? "";
  return {
    device,
    placementText: text(plan.placement_text),
    precision: text(plan.precision) ?? "",
    precisionReason: text(plan.precision_reason),
    parameters: number(plan.parameters),
    trainedParameters: number(plan.trained_parameters) || null,
    memories: memoriesOf(plan, device === "cpu", limit),
    gpuReserved: number(plan.gpu_reserved_bytes),
    tokensPerStep: number(plan.tokens_per_step),
    tokensPerSecond: number(plan.tokens_per_second),
    stepSeconds: number(plan.step_seconds) || null,
    phases: Array.isArray(plan.phases) ? plan.phases.map(readPhase) : [],
    limitedBy: text(plan.limited_by) || null,
    limits: texts(plan.limits),
    steps: number(plan.steps),
    seconds: number(plan.seconds),
    assumptions: texts(plan.assumptions),
  };
}

function memoriesOf(plan: Json, onCpu: boolean, limit: number): MemoryUse[] {
  // Plans of earlier versions know the memory of the training device alone.
  const device = readMemory(onCpu ? "Host" : "GPU", plan.memory, limit);
  return onCpu || !plan.host ? [device] : [device, readMemory("Host", plan.host, 0)];
}

function readMemory(name: MemoryUse["name"], given: unknown, limit: number): MemoryUse {
  const memory = record(given);
  const kinds = Object.fromEntries(MEMORY_KINDS.map((kind) => [kind, number(memory[kind]) ?? 0])) as Record<MemoryKind, number>;
  const total = MEMORY_KINDS.reduce((sum, kind) => sum + kinds[kind], 0);
  return { name, kinds, total, limit: number(memory.limit_bytes) || limit || total };
}

function readPhase(given: unknown): Phase {
  const phase = record(given);
  return {
    name: text(phase.name) ?? "",
    seconds: number(phase.seconds) ?? 0,
    compute: number(phase.compute) ?? 0,
    link: number(phase.link) ?? 0,
    host: number(phase.host) ?? 0,
  };
}
