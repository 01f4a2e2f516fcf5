/** Jobs that run a person's own script: its requirements, the offers that meet them, templates, quotes and the start. */
import { keepPreviousData, queryOptions, skipToken } from "@tanstack/react-query";
import { answerOf, api } from "./client";
import { forgetLists } from "./jobs";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];

export type Requirements = Schemas["Requirements-Output"];
export type Evidence = Schemas["Evidence-Output"];
export type Confidence = Requirements["gpus"]["confidence"];
export type Detected<Value> = Omit<Requirements["gpus"], "value"> & { value: Value };
type ScriptRequest = Schemas["ScriptIn"];
type Constraints = Partial<Schemas["ConstraintsIn"]>;
export type Needs = Schemas["NeedIn"];
export type Offer = Schemas["OfferOut"];
export type Offers = Schemas["OffersOut"];
export type Span = Schemas["Span"];

export const requirementsQuery = (body: ScriptRequest | null) =>
  queryOptions({
    queryKey: ["requirements", body],
    queryFn: body === null ? skipToken : ({ signal }) => answerOf(api.POST("/api/requirements", { body, signal })),
    placeholderData: keepPreviousData,
    staleTime: 5 * 60_000,
  });

export type OffersRequest = { requirements: Requirements; constraints?: Constraints } | { needs: Needs; constraints?: Constraints };

/** null sends no request: there is nothing to price yet. */
export const offersQuery = (request: OffersRequest | null) =>
  queryOptions({
    queryKey: ["offers", request],
    queryFn: request === null ? skipToken : ({ signal }) => answerOf(api.POST("/api/offers", { body: request, signal })),
    placeholderData: keepPreviousData,
    staleTime: 60_000,
  });

export type ScriptTemplate = components["schemas"]["TemplateOut"];
type StartedScript = components["schemas"]["StartedMlJob"];
export type ScriptQuote = components["schemas"]["Quote"];
export type NewScriptJob = paths["/api/ml-jobs"]["post"]["requestBody"]["content"]["application/json"];

export const templatesQuery = queryOptions({
  queryKey: ["script templates"],
  queryFn: async ({ signal }) => (await answerOf(api.GET("/api/ml-jobs/templates", { signal }))).items,
  staleTime: 60 * 60_000,
});

/** The files of a job as they were uploaded, and which of them the script has changed since. */
export const uploadedFilesQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["jobs", jobId, "uploaded files"],
    queryFn: ({ signal }) => answerOf(api.GET("/api/ml-jobs/{job_id}/files", { params: { path: { job_id: jobId } }, signal })),
  });

export async function startScript(body: NewScriptJob): Promise<StartedScript> {
  const started = await answerOf(api.POST("/api/ml-jobs", { body }));
  void forgetLists();
  return started;
}

/** Everything is checked as if it were started: where it would run, why there, what it would cost. */
export const quoteScript = (body: NewScriptJob): Promise<ScriptQuote> => answerOf(api.POST("/api/ml-jobs/quote", { body }));

/** A notebook that runs the same script in Colab, as the text of its file. */
export async function colabNotebook(body: Schemas["ColabNotebookIn"]): Promise<string> {
  const { notebook } = await answerOf(api.POST("/api/scripts/colab-notebook", { body }));
  return notebook;
}
