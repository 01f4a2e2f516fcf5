import type { Summary } from "@/api/job-summary";
import type { Job } from "@/api/types";
import type { Finding } from "./findings";

/** Codes with which a job is paused by its limits; its message says which one, and what to do. */
const LIMITS: Record<string, string> = { budget: "Paused: the budget is spent.", time_limit: "Paused: its time is up." };

/** What budgets have to say: the last warning of each, and that a job was paused by one. */
export function moneyFindings(job: Pick<Job, "status" | "errorCode" | "errorMessage">, { marks }: Pick<Summary, "marks">): Finding[] {
  const stopped = (job.status === "paused" || job.status === "pausing") && job.errorCode !== null ? LIMITS[job.errorCode] : undefined;
  if (stopped) return [{ key: "limit", tone: "bad", title: stopped, text: job.errorMessage ?? "" }];
  const last = new Map(marks.flatMap(({ warning }) => (warning ? [[warning.scope, warning] as const] : [])));
  return [...last.values()].map(({ percent, scope, sentence }) => ({
    key: `budget-${scope}`,
    tone: percent >= 100 ? "bad" : percent >= 80 ? "attention" : "plain",
    title: "Budget.",
    text: sentence,
  }));
}
