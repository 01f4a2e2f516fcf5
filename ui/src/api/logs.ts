/** What a training process printed. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api } from "./client";

const at = (id: string) => ({ path: { job_id: id } });

export const readLogs = (id: string, after: number | undefined, signal?: AbortSignal) =>
  answerOf(api.GET("/api/training-jobs/{job_id}/logs", { params: { ...at(id), query: { after } }, signal }));

export const logSearchQuery = (id: string, text: string) =>
  queryOptions({
    queryKey: ["jobs", "log-search", id, text],
    queryFn: ({ signal }) =>
      answerOf(api.GET("/api/training-jobs/{job_id}/logs/search", { params: { ...at(id), query: { text } }, signal })),
    enabled: text !== "",
    staleTime: 0,
  });
