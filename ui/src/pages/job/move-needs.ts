/** What a job that goes on elsewhere needs there, as far as its own record says. */
import { number, record } from "@/api/free-json";
import { progressOf } from "@/api/job-summary";
import { readPlan } from "@/api/plan";
import type { Job } from "@/api/types";

const GIB = 2 ** 30;
const HOUR = 3600;

export type MoveNeeds = { memoryGb: number | null; hours: number | null };

/** Of a training from its plan, of a script from what was found in it; hours are those that are left. */
export function moveNeeds(job: Pick<Job, "plan" | "summary" | "status">): MoveNeeds {
  const plan = readPlan(job.plan);
  const found = record(record(job.plan).requirements);
  const value = (name: string) => number(record(found[name]).value);
  const [memory] = plan?.memories ?? [];
  const hours = plan ? (plan.seconds === null ? null : plan.seconds / HOUR) : value("duration_hours");
  return {
    memoryGb: memory ? Math.ceil((memory.total / GIB) * 10) / 10 : value("gpu_memory_gb"),
    hours: hours === null ? null : Math.max(0.01, Number((hours * (1 - (progressOf(job) ?? 0))).toPrecision(2))),
  };
}
