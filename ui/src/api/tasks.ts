/** What is done with a trained model besides training it, each a job of its own: evaluations, exports. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answerOf, api } from "./client";
import { isResting, jobQuery } from "./jobs";
import { queryClient } from "./query-client";
import type { JobKind, NewEvaluation, NewExport } from "./task-types";
import type { Job } from "./types";

const MOVING_EVERY = 1_000;
const RESTING_EVERY = 15_000;
const TASK_LIMIT = 20;

/** The tasks about one run, newest first. */
export const tasksQuery = (parentId: string, kind: JobKind) =>
  queryOptions({
    queryKey: ["jobs", "tasks", parentId, kind],
    queryFn: ({ signal }) => answerOf(api.GET("/api/training-jobs", { params: { query: { parentId, kind: [kind], limit: TASK_LIMIT } }, signal })),
    refetchInterval: (query) => (query.state.data?.items.some((job) => !isResting(job.status)) ? MOVING_EVERY : RESTING_EVERY),
  });

function keep(task: Job): Job {
  queryClient.setQueryData(jobQuery(task.id).queryKey, task);
  void forgetTasks();
  return task;
}

const at = (id: string) => ({ path: { job_id: id } });

export const startEvaluation = async (jobId: string, body: NewEvaluation) =>
  keep(await answerOf(api.POST("/api/training-jobs/{job_id}/evaluations", { params: at(jobId), body })));

export const startExport = async (jobId: string, body: NewExport) => keep(await answerOf(api.POST("/api/training-jobs/{job_id}/exports", { params: at(jobId), body })));

export const forgetTasks = () => queryClient.invalidateQueries({ queryKey: ["jobs", "tasks"] });

type WantedCheckpoints = { projectId?: string; search?: string; best?: boolean; limit: number; offset: number };

/** Checkpoints of all runs, newest first. */
export const allCheckpointsQuery = (wanted: WantedCheckpoints) =>
  queryOptions({
    queryKey: ["checkpoints", wanted],
    queryFn: ({ signal }) => answerOf(api.GET("/api/checkpoints", { params: { query: wanted }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: RESTING_EVERY,
  });
