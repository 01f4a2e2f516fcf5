/** A job for tests, with what a server would send of one that has said nothing yet. */
import type { Job, RunSummary } from "@/api/types";

/** The summary of a run that has said nothing, with some changes. */
export const runSummary = (change: Partial<RunSummary> = {}): RunSummary => ({
  phase: null,
  waiting: null,
  step: null,
  total_steps: null,
  epoch: null,
  epochs: null,
  eta_seconds: null,
  world_size: null,
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
  alerts: [],
  processes: { ranks: [], rank_variance: [], nodes: [], left_out: 0 },
  cost: null,
  start: null,
  ...change,
});

type Change = Partial<Omit<Job, "summary" | "plan" | "config" | "task" | "offer">> & { summary?: object; plan?: object | null; config?: object | null; task?: object | null; offer?: object | null };

export const testJob = ({ summary, ...change }: Change = {}): Job =>
  ({ id: "j", kind: "train", target: "local", budget: null, max_hours: null, status: "running", has_model: false, plan: null, offer: null, failover: [], config: null, task: null, settings: {}, error_code: null, error_message: null, queue_position: null, failed_on_data: false, mix: [], branch: null, active_seconds: 0, active_since: null, start_time: null, end_time: null, ...change, summary: runSummary(summary as Partial<RunSummary>) }) as Job;
