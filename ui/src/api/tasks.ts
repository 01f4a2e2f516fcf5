/** Tasks on a trained model (evaluation, export, learning-rate finder): how they are listed and started. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient } from "./client";
import { isResting, jobQuery, RESTING_EVERY } from "./jobs";
import type { EvaluationResult, Job, JobKind, NewEvaluation, NewExport, QueryOf } from "./types";

const MOVING_EVERY = 1_000;
const TASK_LIMIT = 20;

/** The tasks about one run, newest first. */
export const tasksQuery = (parentId: string, kind: JobKind) =>
  queryOptions({
    queryKey: ["jobs", "tasks", parentId, kind],
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs", { params: { query: { parent_id: parentId, kind: [kind], limit: TASK_LIMIT } }, signal })),
    refetchInterval: (query) => (query.state.data?.items.some((job) => !isResting(job.status)) ? MOVING_EVERY : RESTING_EVERY),
  });

function keep(task: Job): Job {
  queryClient.setQueryData(jobQuery(task.id).queryKey, task);
  void forgetTasks();
  return task;
}

const at = (id: string) => ({ path: { job_id: id } });

export const startEvaluation = async (jobId: string, body: NewEvaluation) =>
  keep(await answerOf(api.POST("/api/jobs/{job_id}/evaluations", { params: at(jobId), body })));

export const startExport = async (jobId: string, body: NewExport) => keep(await answerOf(api.POST("/api/jobs/{job_id}/exports", { params: at(jobId), body })));

/** The formats in which a model, or one of its checkpoints, can be exported. */
export const exportFormsQuery = (jobId: string, checkpointId: string | null) =>
  queryOptions({
    queryKey: ["jobs", "export-forms", jobId, checkpointId],
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/export-forms", { params: { ...at(jobId), query: { checkpoint_id: checkpointId } }, signal })),
  });

export const forgetTasks = () => queryClient.invalidateQueries({ queryKey: ["jobs", "tasks"] });

/** Checkpoints of all runs, newest first. */
export const allCheckpointsQuery = (wanted: QueryOf<"/api/checkpoints">) =>
  queryOptions({
    queryKey: ["checkpoints", wanted],
    queryFn: ({ signal }) => answerOf(api.GET("/api/checkpoints", { params: { query: wanted }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: RESTING_EVERY,
  });

type Score = { name: string; base: number | null; tuned: number | null };

/** The scores of benchmarks by task and metric, of the base beside those of the tuned model. */
export function scoresOf({ lm_eval: benchmarks }: Pick<EvaluationResult, "lm_eval">): Score[] {
  const [base, tuned] = [named(benchmarks?.base), named(benchmarks?.tuned)];
  return [...new Set([...tuned.keys(), ...base.keys()])].map((name) => ({ name, base: base.get(name) ?? null, tuned: tuned.get(name) ?? null }));
}

function named(tasks: NonNullable<EvaluationResult["lm_eval"]>["base"] | undefined): Map<string, number | null> {
  return new Map(Object.entries(tasks ?? {}).flatMap(([task, metrics]) => Object.entries(metrics).map(([metric, score]) => [`${task} ${metric}`, score])));
}
