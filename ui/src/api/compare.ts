import { queryOptions } from "@tanstack/react-query";
import { answerOf, api } from "./client";
import { fetchCurves, isResting } from "./jobs";

export const FEWEST = 2;
export const MOST = 8;

const MOVING_EVERY = 3_000;

export const comparisonQuery = (ids: readonly string[]) =>
  queryOptions({
    queryKey: ["compare", ids],
    queryFn: ({ signal }) => answerOf(api.GET("/api/compare", { params: { query: { job: [...ids] } }, signal })),
    enabled: ids.length >= FEWEST,
    refetchInterval: (query) => (query.state.data?.jobs.some((job) => !isResting(job.status)) ? MOVING_EVERY : false),
  });

/** The curves of each run, in the order of the ids. */
export const comparedCurvesQuery = (ids: readonly string[], series: string[], live: boolean) =>
  queryOptions({
    queryKey: ["compare", "curves", ids],
    queryFn: ({ signal }) => Promise.all(ids.map((id) => fetchCurves(id, { series }, signal))),
    enabled: ids.length >= FEWEST,
    refetchInterval: live ? MOVING_EVERY : false,
  });
