import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient, receivedAt, sendAt } from "./client";
import { pollInterval } from "./problem";
import type { components } from "./schema";
import type { Dataset, QueryOf } from "./types";

type Schemas = components["schemas"];

const MOVING_EVERY = 1_000;
const RESTING_EVERY = 30_000;

/** Nothing happens to it until somebody asks. An upload moves as well, but its own page knows how far it is. */
const isSettled = ({ status }: Pick<Dataset, "status">) => status === "ready" || status === "failed";

export const datasetsQuery = ({ search = "", limit, offset = 0 }: QueryOf<"/api/datasets">) =>
  queryOptions({
    queryKey: ["datasets", "list", { search, limit, offset }],
    queryFn: ({ signal }) => answerOf(api.GET("/api/datasets", { params: { query: { search, limit, offset } }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: (query) => (query.state.data?.items.every(isSettled) ? RESTING_EVERY : MOVING_EVERY),
  });

const at = (id: string) => ({ path: { dataset_id: id } });

export const datasetQuery = (id: string) =>
  queryOptions({
    queryKey: ["datasets", "one", id],
    queryFn: ({ signal }) => answerOf(api.GET("/api/datasets/{dataset_id}", { params: at(id), signal })),
    refetchInterval: (query) => pollInterval(query, query.state.data && isSettled(query.state.data) ? RESTING_EVERY : MOVING_EVERY),
  });

/** Rows, raw and as a model sees them. A changed mapping is another version of them. */
export const previewQuery = (dataset: Pick<Dataset, "id" | "format" | "columns">, wanted: QueryOf<"/api/datasets/{dataset_id}/preview">) =>
  queryOptions({
    queryKey: ["datasets", "preview", dataset.id, dataset.format, dataset.columns, wanted],
    queryFn: ({ signal }) => answerOf(api.GET("/api/datasets/{dataset_id}/preview", { params: { ...at(dataset.id), query: wanted }, signal })),
    placeholderData: keepPreviousData,
  });

export const problemsQuery = (dataset: Pick<Dataset, "id" | "format" | "columns">, offset: number, limit: number) =>
  queryOptions({
    queryKey: ["datasets", "problems", dataset.id, dataset.format, dataset.columns, offset, limit],
    queryFn: ({ signal }) => answerOf(api.GET("/api/datasets/{dataset_id}/problems", { params: { ...at(dataset.id), query: { offset, limit } }, signal })),
    placeholderData: keepPreviousData,
  });

export const convertedAddress = (id: string) => `/api/datasets/${id}/converted`;

const forgetDatasets = () => queryClient.invalidateQueries({ queryKey: ["datasets", "list"] });

function keep(dataset: Dataset): Dataset {
  queryClient.setQueryData(datasetQuery(dataset.id).queryKey, dataset);
  void forgetDatasets();
  return dataset;
}

export const announceDataset = async (body: Schemas["NewDataset"]) => keep(await answerOf(api.POST("/api/datasets", { body })));

export const fetchDataset = async (body: Schemas["DatasetFromHub"]) => keep(await answerOf(api.POST("/api/datasets/from-hub", { body })));

export const changeDataset = async (id: string, body: Schemas["DatasetChange"]) =>
  keep(await answerOf(api.PATCH("/api/datasets/{dataset_id}", { params: at(id), body })));

export async function deleteDataset(id: string) {
  await answerOf(api.DELETE("/api/datasets/{dataset_id}", { params: at(id) }));
  void forgetDatasets();
}

/** The server has the last byte: fetch its report now instead of at the next poll. */
export const refreshDataset = (id: string) => {
  void queryClient.invalidateQueries({ queryKey: datasetQuery(id).queryKey });
  return forgetDatasets();
};

export function datasetContent(id: string) {
  const address = `/api/datasets/${id}/content`;
  return {
    received: (signal: AbortSignal) => receivedAt(address, signal),
    send: (bytes: ArrayBuffer, offset: number, signal: AbortSignal) => sendAt(address, bytes, offset, signal),
  };
}
