/** What a job that goes on elsewhere needs there, as far as its own record says. */
import { useQuery } from "@tanstack/react-query";
import { number, record, texts } from "@/api/free-json";
import { progressOf } from "@/api/job-summary";
import { scriptQuery } from "@/api/jobs";
import { readPlan } from "@/api/plan";
import { type Requirements, requirementsQuery } from "@/api/scripts";
import type { Job } from "@/api/types";
import type { KnownNeeds } from "@/pages/offers/use-rental-form";

const GIB = 2 ** 30;
const HOUR = 3600;
/** A script that needs no GPU still gets one elsewhere; any will do. */
const LEAST_GB = 1;

const left = (hours: number, job: Pick<Job, "summary" | "status">) => Math.max(0.01, Number((hours * (1 - (progressOf(job) ?? 0))).toPrecision(2)));

/** Of a training from its plan, of a script from what is found in it; hours are those that are left. */
export function moveNeeds(job: Pick<Job, "plan" | "offer" | "summary" | "status">, requirements: Requirements | undefined): KnownNeeds {
  const plan = readPlan(job.plan);
  if (plan !== null) {
    const [memory] = plan.memories;
    return { memoryGb: memory ? Math.ceil((memory.total / GIB) * 10) / 10 : null, hours: plan.seconds === null ? null : left(plan.seconds / HOUR, job) };
  }
  if (requirements) return { memoryGb: Math.max(LEAST_GB, requirements.gpuMemoryGb.value), hours: left(requirements.durationHours.value, job) };
  return { memoryGb: number(record(job.offer).memory_gb), hours: null };
}

export function useMoveNeeds(job: Job): KnownNeeds {
  const script = useQuery({ ...scriptQuery(job.id), enabled: job.kind === "script" });
  const request = script.data ? { script: script.data.script, files: {}, arguments: texts(job.config.arguments) } : null;
  const requirements = useQuery(requirementsQuery(request));
  return moveNeeds(job, requirements.data);
}
