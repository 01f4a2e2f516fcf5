/** How a plan fills the machine's memories. */
import type { Memory, MemoryNeeds, Plan } from "./types";

export const MEMORY_KINDS = ["weights", "gradients", "optimizer", "activations", "overhead"] as const satisfies readonly (keyof Memory)[];
export type MemoryKind = (typeof MEMORY_KINDS)[number];

/** One memory: what is in it at its fullest, and how much may be. */
export type MemoryUse = { name: "GPU" | "Host"; kinds: Memory; total: number; limit: number };

/** The GPU's first; a CPU trains in the host's alone. */
export function memoriesOf(plan: Plan): MemoryUse[] {
  const onCpu = plan.device === "cpu";
  // Plans of earlier versions know the memory of the training device alone.
  const device = memoryUse(onCpu ? "Host" : "GPU", plan.memory, plan.memory_limit_bytes);
  return onCpu || !plan.host ? [device] : [device, memoryUse("Host", plan.host, 0)];
}

/** What a run that does not fit would need at least. */
export function memoriesNeeded({ gpu, host }: MemoryNeeds): MemoryUse[] {
  return [...(gpu ? [memoryUse("GPU", gpu, 0)] : []), memoryUse("Host", host, 0)];
}

function memoryUse(name: MemoryUse["name"], kinds: Memory, limit: number): MemoryUse {
  const total = MEMORY_KINDS.reduce((sum, kind) => sum + kinds[kind], 0);
  return { name, kinds, total, limit: kinds.limit_bytes || limit || total };
}
