/** Read-only links to a job, from both sides: those who make them, and those who open one. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api } from "./client";
import { isResting } from "./jobs";
import { pollInterval } from "./problem";
import { queryClient } from "./query-client";

const at = (id: string) => ({ path: { job_id: id } });

export const sharesQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["jobs", "shares", jobId],
    queryFn: ({ signal }) => answerOf(api.GET("/api/training-jobs/{job_id}/shares", { params: at(jobId), signal })),
  });

export async function createShare(jobId: string) {
  const created = await answerOf(api.POST("/api/training-jobs/{job_id}/shares", { params: at(jobId) }));
  void queryClient.invalidateQueries({ queryKey: sharesQuery(jobId).queryKey });
  return created;
}

export async function revokeShare(jobId: string, shareId: string) {
  await answerOf(
    api.DELETE("/api/training-jobs/{job_id}/shares/{share_id}", { params: { path: { job_id: jobId, share_id: shareId } } }),
  );
  await queryClient.invalidateQueries({ queryKey: sharesQuery(jobId).queryKey });
}

const POLL = 2_000;

export const sharedJobQuery = (token: string) =>
  queryOptions({
    queryKey: ["shared", "job", token],
    queryFn: ({ signal }) => answerOf(api.GET("/api/shared/job", { params: { header: { "x-share-token": token } }, signal })),
    refetchInterval: (query) => pollInterval(query, query.state.data && isResting(query.state.data.status) ? 15_000 : POLL),
  });

export const sharedCurvesQuery = (token: string, live: boolean) =>
  queryOptions({
    queryKey: ["shared", "curves", token],
    queryFn: ({ signal }) => answerOf(api.GET("/api/shared/metrics", { params: { header: { "x-share-token": token } }, signal })),
    refetchInterval: live ? POLL : false,
  });
