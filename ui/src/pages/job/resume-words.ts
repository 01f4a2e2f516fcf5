/** Where a job continues when it is queued again: what the dialogs and messages about resuming say. */
import { queryClient } from "@/api/client";
import { checkpointsQuery } from "@/api/jobs";
import type { Checkpoint, Job } from "@/api/types";
import { countText } from "@/text/numbers";

type Resumable = Pick<Job, "kind" | "task" | "attempt" | "branch">;

/** One sentence. `steps`: the steps of the checkpoints that the job has saved. */
export function startText({ kind, task, attempt, branch }: Resumable, steps: readonly number[]): string {
  if (kind === "script" && !(task?.kind === "script" && task.resumes)) return "It starts from the beginning, because the script cannot resume.";
  if (steps.length > 0) return `It resumes from its last checkpoint, step ${countText(Math.max(...steps))}.`;
  if (branch) return `It starts from the checkpoint of step ${countText(branch.step)} that it was branched from.`;
  return attempt === 0 ? "It starts from the beginning: it has not run yet." : "It starts from the beginning: it has no checkpoint.";
}

export const stepsOf = (checkpoints: readonly Pick<Checkpoint, "step">[] = []) => checkpoints.map(({ step }) => step);

/** That the job is queued, and the same with the checkpoints that the server knows of now. */
export async function queuedText(job: Job): Promise<string> {
  try {
    const { items } = await queryClient.fetchQuery(checkpointsQuery(job.id));
    return `The job is queued. ${startText(job, stepsOf(items))}`;
  } catch {
    // The job is queued, even if the list cannot be loaded now.
    return "The job is queued.";
  }
}

/** What cancelling means; null until the checkpoints are known. */
export function cancelText(job: Resumable, steps: readonly number[] | null): string {
  if (job.kind === "run") return "The run is asked to stop on its machine. Its charts and output stay here.";
  const stops = job.attempt === 0 ? "The job leaves the queue." : "The job stops and its device becomes free for the next job.";
  const kept = steps?.length ? " Its checkpoints are kept." : "";
  return `${stops}${kept} You can resume it later.${steps ? ` ${startText(job, steps)}` : ""}`;
}
