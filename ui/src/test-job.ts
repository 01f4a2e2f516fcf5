/** A job for tests, with what a server would send of one that has said nothing yet. */
import type { Job, RunSummary } from "@/api/types";
import { runSummary } from "./test-summary";

type Change = Partial<Omit<Job, "summary" | "plan" | "config" | "task" | "offer">> & { summary?: object; plan?: object | null; config?: object | null; task?: object | null; offer?: object | null };

export const testJob = ({ summary, ...change }: Change = {}): Job =>
  ({ id: "j", kind: "train", target: "local", budget: null, max_hours: null, status: "running", has_model: false, plan: null, offer: null, config: null, task: null, settings: {}, error_code: null, error_message: null, queue_position: null, ...change, summary: runSummary(summary as Partial<RunSummary>) }) as Job;
