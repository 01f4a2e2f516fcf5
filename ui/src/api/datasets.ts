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

/** What makes other rows of a dataset: another mapping, or passages that were cut again. */
type Version = Pick<Dataset, "id" | "format" | "columns" | "size">;

/** Rows, raw and as a model sees them. */
export const previewQuery = (dataset: Version, wanted: QueryOf<"/api/datasets/{dataset_id}/preview">) =>
  queryOptions({
    queryKey: ["datasets", "preview", dataset.id, dataset.format, dataset.columns, dataset.size, wanted],
    queryFn: ({ signal }) => answerOf(api.GET("/api/datasets/{dataset_id}/preview", { params: { ...at(dataset.id), query: wanted }, signal })),
    placeholderData: keepPreviousData,
  });

export const problemsQuery = (dataset: Version, offset: number, limit: number) =>
  queryOptions({
    queryKey: ["datasets", "problems", dataset.id, dataset.format, dataset.columns, dataset.size, offset, limit],
    queryFn: ({ signal }) => answerOf(api.GET("/api/datasets/{dataset_id}/problems", { params: { ...at(dataset.id), query: { offset, limit } }, signal })),
    placeholderData: keepPreviousData,
  });

/** Documents of an upload. Another passage length is another version of what they gave. */
export const documentsQuery = ({ id, status, documents }: Dataset, offset: number, limit: number) =>
  queryOptions({
    queryKey: ["datasets", "documents", id, status, documents, offset, limit],
    queryFn: ({ signal }) => answerOf(api.GET("/api/datasets/{dataset_id}/documents", { params: { ...at(id), query: { offset, limit } }, signal })),
    placeholderData: keepPreviousData,
  });

export const rejectedQuery = ({ id, questions }: Dataset, offset: number, limit: number) =>
  queryOptions({
    queryKey: ["datasets", "rejected", id, questions, offset, limit],
    queryFn: ({ signal }) => answerOf(api.GET("/api/datasets/{dataset_id}/rejected", { params: { ...at(id), query: { offset, limit } }, signal })),
    placeholderData: keepPreviousData,
  });

type Bounds = Pick<Schemas["QuestionsIn"], "pairs" | "most_passages" | "max_answer_tokens" | "most_tokens">;

/** What an order would cost; which model writes plays no part in it. */
export const estimateQuery = (id: string, bounds: Bounds) =>
  queryOptions({
    queryKey: ["datasets", "estimate", id, bounds],
    queryFn: ({ signal }) => answerOf(api.POST("/api/datasets/{dataset_id}/questions/estimate", { params: at(id), body: { ...bounds, model: "any" }, signal })),
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

export const announceDocuments = async (body: Schemas["NewDocuments"]) => keep(await answerOf(api.POST("/api/datasets/from-documents", { body })));

export const cutAgain = async (id: string, length: number) =>
  keep(await answerOf(api.POST("/api/datasets/{dataset_id}/passages", { params: at(id), body: { passage_characters: length } })));

export const orderQuestions = async (id: string, body: Schemas["NewQuestions"]) =>
  keep(await answerOf(api.POST("/api/datasets/{dataset_id}/questions", { params: at(id), body })));

export const stopQuestions = async (id: string) => keep(await answerOf(api.POST("/api/datasets/{dataset_id}/questions/stop", { params: at(id) })));

export const continueQuestions = async (id: string) => keep(await answerOf(api.POST("/api/datasets/{dataset_id}/questions/continue", { params: at(id), body: {} })));

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
