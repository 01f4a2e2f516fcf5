/** For tests: the summary of a run that has said nothing, with some changes. */
import type { RunSummary } from "@/api/types";

export const runSummary = (change: Partial<RunSummary> = {}): RunSummary => ({
  phase: null,
  waiting: null,
  step: null,
  total_steps: null,
  epoch: null,
  epochs: null,
  eta_seconds: null,
  restart_count: 0,
  resumed_from_step: null,
  control_version: null,
  updated_at: null,
  values: {},
  system: {},
  facts: {},
  dropped: {},
  damaged_lines: 0,
  error: null,
  marks: [],
  findings: [],
  cost: null,
  ...change,
});

export const lastValues = (values: Record<string, number>) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { step: 1, value }]));
