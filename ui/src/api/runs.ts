/** The run list: rows of a view, overlays, comparisons, tags and notes, saved views. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient } from "./client";
import { LIVE_EVERY, RESTING_EVERY } from "./jobs";
import type { JobStatus, QueryOf, RunView, RunViewBody } from "./types";

const MOVING: readonly JobStatus[] = ["running", "provisioning", "queued", "pausing", "cancelling"];

export const runsQuery = (wanted: QueryOf<"/api/runs">) =>
  queryOptions({
    queryKey: ["runs", "list", wanted],
    queryFn: ({ signal }) => answerOf(api.GET("/api/runs", { params: { query: wanted }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: (query) => (MOVING.some((status) => query.state.data?.statuses[status]) ? LIVE_EVERY : RESTING_EVERY),
    // A filter that cannot be read stays so.
    retry: false,
  });

export const overlayQuery = (wanted: { series: string; groups: readonly string[]; along: "step" | "tokens" }, live: boolean) =>
  queryOptions({
    queryKey: ["runs", "overlay", wanted],
    queryFn: ({ signal }) => answerOf(api.GET("/api/runs/overlay", { params: { query: { series: wanted.series, group: [...wanted.groups], along: wanted.along } }, signal })),
    enabled: wanted.groups.length > 0 && wanted.series !== "",
    placeholderData: keepPreviousData,
    refetchInterval: live ? LIVE_EVERY : false,
  });

export const runComparisonQuery = (ids: readonly string[]) =>
  queryOptions({
    queryKey: ["runs", "compare", ids],
    queryFn: ({ signal }) => answerOf(api.GET("/api/runs/compare", { params: { query: { run: [...ids] } }, signal })),
    enabled: ids.length >= 2,
    placeholderData: keepPreviousData,
  });

export const runViewsQuery = queryOptions({
  queryKey: ["runs", "views"],
  queryFn: async ({ signal }) => (await answerOf(api.GET("/api/run-views", { signal }))).items,
});

const again = (...key: string[]) => queryClient.invalidateQueries({ queryKey: ["runs", ...key] });

export async function labelRun(id: string, change: { tags?: string[]; notes?: string }) {
  await answerOf(api.PATCH("/api/runs/{run_id}", { params: { path: { run_id: id } }, body: change }));
}

export const refreshRuns = () => again("list");

export async function createRunView(body: RunViewBody): Promise<RunView> {
  const made = await answerOf(api.POST("/api/run-views", { body }));
  await again("views");
  return made;
}

export async function changeRunView(id: string, body: RunViewBody): Promise<void> {
  await answerOf(api.PUT("/api/run-views/{view_id}", { params: { path: { view_id: id } }, body }));
  await again("views");
}

export async function deleteRunView(id: string): Promise<void> {
  await answerOf(api.DELETE("/api/run-views/{view_id}", { params: { path: { view_id: id } } }));
  await again("views");
}
