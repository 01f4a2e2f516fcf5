/** What the engine reports about its own steps. Absent where everything stays on one device. */

export const STEP_PARTS = {
  computing: "engine/computing_seconds",
  weights: "engine/waiting_for_weights_seconds",
  optimizer: "engine/waiting_for_optimizer_seconds",
} as const;

export const ENGINE_MEMORY = { GPU: "engine/gpu_reserved_bytes", Host: "engine/host_bytes" } as const;
