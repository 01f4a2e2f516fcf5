/** Training jobs: lists, details, curves, logs, files, comparisons, share links, and the commands that start and change a job. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient } from "./client";
import { pollInterval } from "./problem";
import type { Curves, Extension, Job, JobListItem, JobStatus, LiveSettings, Move, NewBranch, NewJob, PlanRequest, QueryOf } from "./types";

/** States in which nothing happens until somebody asks for it. */
const RESTING: readonly JobStatus[] = ["completed", "failed", "cancelled", "paused"];
export const isResting = (status: JobStatus) => RESTING.includes(status);

export const LIVE_EVERY = 2_000;
export const RESTING_EVERY = 15_000;

/** Lists have no stream: they are polled often while a job in them is active, and rarely otherwise. */
const listInterval = (jobs: JobListItem[] | undefined) => (jobs?.some((job) => !isResting(job.status)) ? LIVE_EVERY : RESTING_EVERY);

export const jobsQuery = (wanted: QueryOf<"/api/jobs">) =>
  queryOptions({
    queryKey: ["jobs", "list", wanted],
    queryFn: ({ signal }) =>
      answerOf(api.GET("/api/jobs", { params: { query: wanted }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: (query) => listInterval(query.state.data?.items),
  });

export const totalsQuery = queryOptions({
  queryKey: ["jobs", "totals"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/totals", { signal })),
  refetchInterval: RESTING_EVERY,
});

const at = (id: string) => ({ path: { job_id: id } });

export const jobQuery = (id: string) =>
  queryOptions({
    queryKey: ["jobs", "one", id],
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}", { params: at(id), signal })),
  });

export const checkpointsQuery = (id: string) =>
  queryOptions({
    queryKey: ["jobs", "checkpoints", id],
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/checkpoints", { params: at(id), signal })),
  });

export const machinesQuery = queryOptions({
  queryKey: ["machines"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/machines", { signal })),
  staleTime: 30_000,
});

export const modelFilesQuery = (id: string) =>
  queryOptions({
    queryKey: ["jobs", "model", id],
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/model", { params: at(id), signal })),
  });

export const scriptQuery = (id: string) =>
  queryOptions({
    queryKey: ["jobs", "script", id],
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/script", { params: at(id), signal })),
  });

export const whatRanQuery = (id: string) =>
  queryOptions({
    queryKey: ["jobs", "what-ran", id],
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/what-ran", { params: at(id), signal })),
  });

/** Whether the run improved, as its evaluations so far say. */
export const improvementQuery = ({ id, status, summary }: Pick<Job, "id" | "status" | "summary">, evaluations: number) =>
  queryOptions({
    queryKey: ["jobs", "improvement", id, status, evaluations, summary.findings.filter((finding) => finding.without_best).length],
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/improvement", { params: at(id), signal })),
  });

/** What the model answers to the sample prompts of its run; asked again while the run can write more. */
export const samplesQuery = ({ id, status }: Pick<Job, "id" | "status">) =>
  queryOptions({
    queryKey: ["jobs", "samples", id, status],
    placeholderData: keepPreviousData,
    refetchInterval: isResting(status) ? false : RESTING_EVERY,
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/samples", { params: at(id), signal })),
  });

const inPath = (path: string) => path.split("/").map(encodeURIComponent).join("/");

/** What a script wrote or changed in its folder; fetched again with every state that its job enters. */
export const artifactsQuery = ({ id, status }: Pick<Job, "id" | "status">) =>
  queryOptions({
    queryKey: ["jobs", "artifacts", id, status],
    placeholderData: keepPreviousData,
    refetchInterval: isResting(status) ? 2 * RESTING_EVERY : RESTING_EVERY,
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/artifacts", { params: at(id), signal })),
  });

export const artifactsArchiveAddress = (id: string) => `/api/jobs/${id}/artifacts/archive`;
export const artifactAddress = (id: string, path: string) => `/api/jobs/${id}/artifacts/files/${inPath(path)}`;

/** Files of a rented job that are kept in the bucket; stored a moment after its end. */
export const storedArtifactsQuery = ({ id, status }: Pick<Job, "id" | "status">) =>
  queryOptions({
    queryKey: ["jobs", "stored artifacts", id, status],
    placeholderData: keepPreviousData,
    refetchInterval: isResting(status) ? 2 * RESTING_EVERY : false,
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/stored-artifacts", { params: at(id), signal })),
  });

/** An address that works for so many seconds, for whoever has it. */
export const createArtifactAddress = (id: string, artifact: string, lifeSeconds: number) =>
  answerOf(api.POST("/api/jobs/{job_id}/stored-artifacts/{artifact_id}/address", { params: { path: { job_id: id, artifact_id: artifact } }, body: { life_seconds: lifeSeconds } }));

export const archiveAddress = (id: string) => `/api/jobs/${id}/model/archive`;
export const modelFileAddress = (id: string, path: string) => `/api/jobs/${id}/model/files/${inPath(path)}`;

export const planQuery = (body: PlanRequest) =>
  queryOptions({
    queryKey: ["plan", body],
    queryFn: ({ signal }) => answerOf(api.POST("/api/plan", { body, signal })),
    placeholderData: keepPreviousData,
    staleTime: 60_000,
  });

/** What a job would train on, counted with its model. */
export const preflightQuery = (body: PlanRequest) =>
  queryOptions({
    queryKey: ["preflight", body],
    queryFn: ({ signal }) => answerOf(api.POST("/api/preflight", { body, signal })),
    placeholderData: keepPreviousData,
    staleTime: 60_000,
    retry: false,
  });

/** The script that a job would run; fetched when somebody opens it. */
export const planScriptQuery = (body: PlanRequest) =>
  queryOptions({
    queryKey: ["plan", "script", body],
    queryFn: ({ signal }) => answerOf(api.POST("/api/plan/script", { body, signal })),
    staleTime: 60_000,
  });

export async function fetchCurves(id: string, range: QueryOf<"/api/jobs/{job_id}/metrics"> = {}, signal?: AbortSignal): Promise<Curves> {
  return answerOf(api.GET("/api/jobs/{job_id}/metrics", { params: { ...at(id), query: range }, signal }));
}

function keep(job: Job): Job {
  queryClient.setQueryData(jobQuery(job.id).queryKey, job);
  void forgetLists();
  return job;
}

export function forgetLists() {
  void queryClient.invalidateQueries({ queryKey: totalsQuery.queryKey });
  return queryClient.invalidateQueries({ queryKey: ["jobs", "list"] });
}

export async function createJob(body: NewJob): Promise<Job> {
  const job = keep(await answerOf(api.POST("/api/jobs", { body })));
  if (body.project) void queryClient.invalidateQueries({ queryKey: ["projects", "list"] });
  return job;
}

export const pauseJob = async (id: string) => keep(await answerOf(api.POST("/api/jobs/{job_id}/pause", { params: at(id) })));
export const resumeJob = async (id: string) => keep(await answerOf(api.POST("/api/jobs/{job_id}/resume", { params: at(id) })));
export const cancelJob = async (id: string) => keep(await answerOf(api.POST("/api/jobs/{job_id}/cancel", { params: at(id) })));
export const saveJob = async (id: string) => keep(await answerOf(api.POST("/api/jobs/{job_id}/save", { params: at(id) })));

export const extendJob = async (id: string, body: Extension) =>
  keep(await answerOf(api.POST("/api/jobs/{job_id}/extend", { params: at(id), body })));

export const changeSettings = async (id: string, body: LiveSettings) =>
  keep(await answerOf(api.PATCH("/api/jobs/{job_id}/settings", { params: at(id), body })));

const atCheckpoint = (id: string, checkpoint: string) => ({ path: { job_id: id, checkpoint_id: checkpoint } });

export const checkpointArchiveAddress = (id: string, checkpoint: string) => `/api/jobs/${id}/checkpoints/${checkpoint}/archive`;

function forgetCheckpoints(id: string) {
  void queryClient.invalidateQueries({ queryKey: ["checkpoints"] });
  return queryClient.invalidateQueries({ queryKey: checkpointsQuery(id).queryKey });
}

/** The job goes back to this checkpoint; later ones are deleted. */
export async function resumeFromCheckpoint(id: string, checkpoint: string) {
  const job = keep(await answerOf(api.POST("/api/jobs/{job_id}/checkpoints/{checkpoint_id}/resume", { params: atCheckpoint(id, checkpoint) })));
  void forgetCheckpoints(id);
  return job;
}

/** A new job that continues from this checkpoint. */
export const branchFromCheckpoint = async (id: string, checkpoint: string, body: NewBranch) =>
  keep(await answerOf(api.POST("/api/jobs/{job_id}/checkpoints/{checkpoint_id}/branch", { params: atCheckpoint(id, checkpoint), body })));

export async function deleteCheckpoint(id: string, checkpoint: string) {
  await answerOf(api.DELETE("/api/jobs/{job_id}/checkpoints/{checkpoint_id}", { params: atCheckpoint(id, checkpoint) }));
  await forgetCheckpoints(id);
}

export async function deleteJob(id: string) {
  await answerOf(api.DELETE("/api/jobs/{job_id}", { params: at(id) }));
  void forgetLists();
}

/** From its newest checkpoint, on another machine; no offer is this one. */
export const moveJob = async (id: string, body: Move) => keep(await answerOf(api.POST("/api/jobs/{job_id}/move", { params: at(id), body })));

export const readLogs = (id: string, after: number | undefined, signal?: AbortSignal) =>
  answerOf(api.GET("/api/jobs/{job_id}/logs", { params: { ...at(id), query: { after } }, signal }));

export const logSearchQuery = (id: string, text: string) =>
  queryOptions({
    queryKey: ["jobs", "log-search", id, text],
    queryFn: ({ signal }) =>
      answerOf(api.GET("/api/jobs/{job_id}/logs/search", { params: { ...at(id), query: { text } }, signal })),
    enabled: text !== "",
    staleTime: 0,
  });

/** What can train here, and what to do for those that cannot. */
export const backendsQuery = queryOptions({
  queryKey: ["backends"],
  queryFn: async ({ signal }) => (await answerOf(api.GET("/api/backends", { signal }))).items,
  staleTime: 5 * 60_000,
});

export const sharesQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["jobs", "shares", jobId],
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs/{job_id}/shares", { params: at(jobId), signal })),
  });

export async function createShare(jobId: string) {
  const created = await answerOf(api.POST("/api/jobs/{job_id}/shares", { params: at(jobId) }));
  void queryClient.invalidateQueries({ queryKey: sharesQuery(jobId).queryKey });
  return created;
}

export async function revokeShare(jobId: string, shareId: string) {
  await answerOf(
    api.DELETE("/api/jobs/{job_id}/shares/{share_id}", { params: { path: { job_id: jobId, share_id: shareId } } }),
  );
  await queryClient.invalidateQueries({ queryKey: sharesQuery(jobId).queryKey });
}

export const sharedJobQuery = (token: string) =>
  queryOptions({
    queryKey: ["shared", "job", token],
    queryFn: ({ signal }) => answerOf(api.GET("/api/shared/job", { params: { header: { "x-share-token": token } }, signal })),
    refetchInterval: (query) => pollInterval(query, query.state.data && isResting(query.state.data.status) ? RESTING_EVERY : LIVE_EVERY),
  });

export const sharedCurvesQuery = (token: string, live: boolean) =>
  queryOptions({
    queryKey: ["shared", "curves", token],
    queryFn: ({ signal }) => answerOf(api.GET("/api/shared/metrics", { params: { header: { "x-share-token": token } }, signal })),
    refetchInterval: live ? LIVE_EVERY : false,
  });
