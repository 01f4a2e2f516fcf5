import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient, receivedAt, sendAt } from "./client";
import type { components } from "./schema";
import type { Model } from "./types";

const MOVING_EVERY = 1_000;
const RESTING_EVERY = 30_000;

const isSettledModel = ({ status }: Pick<Model, "status">) => status === "ready" || status === "failed";

export const catalogueQuery = queryOptions({
  queryKey: ["catalogue"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/catalogue", { signal })),
  staleTime: 60 * 60_000,
});

export const modelsQuery = queryOptions({
  queryKey: ["models", "list"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/models", { params: { query: { limit: 200 } }, signal })),
  placeholderData: keepPreviousData,
  refetchInterval: (query) => (query.state.data?.items.every(isSettledModel) ? RESTING_EVERY : MOVING_EVERY),
});

const at = (id: string) => ({ path: { model_id: id } });

export const forgetModels = () => queryClient.invalidateQueries({ queryKey: modelsQuery.queryKey });

async function changed<T>(answer: Promise<T>): Promise<T> {
  const result = await answer;
  void forgetModels();
  return result;
}

export const addModel = (body: components["schemas"]["NewModel"]) => changed(answerOf(api.POST("/api/models", { body })));
export const checkModel = (id: string) => changed(answerOf(api.POST("/api/models/{model_id}/check", { params: at(id) })));
/** Tries a failed download again. */
export const fetchModelAgain = (id: string) => changed(answerOf(api.POST("/api/models/{model_id}/fetch", { params: at(id) })));
/** Adds the finished model of a job to one's own models. */
export const addJobModel = (jobId: string) => changed(answerOf(api.POST("/api/jobs/{job_id}/base-model", { params: { path: { job_id: jobId } } })));
export const deleteModel = (id: string) => changed(answerOf(api.DELETE("/api/models/{model_id}", { params: at(id) })));

export function modelFile(id: string, path: string) {
  const address = `/api/models/${id}/files/${path.split("/").map(encodeURIComponent).join("/")}`;
  return {
    received: (signal: AbortSignal) => receivedAt(address, signal),
    send: (bytes: ArrayBuffer, offset: number, signal: AbortSignal) => sendAt(address, bytes, offset, signal),
  };
}

export const hubTokenQuery = queryOptions({
  queryKey: ["me", "hub-token"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/me/hub-token", { signal })),
});

const forgetToken = () => queryClient.invalidateQueries({ queryKey: hubTokenQuery.queryKey });

export async function keepHubToken(token: string) {
  await answerOf(api.PUT("/api/me/hub-token", { body: { token } }));
  await forgetToken();
}

export async function removeHubToken() {
  await answerOf(api.DELETE("/api/me/hub-token"));
  await forgetToken();
}
