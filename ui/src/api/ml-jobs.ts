/** Jobs that run a person's own files, and templates to start from. These addresses spell in snake_case, both ways. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api } from "./client";
import { forgetLists } from "./jobs";
import type { components, paths } from "./schema";

export type ScriptTemplate = components["schemas"]["TemplateOut"];
export type StartedScript = components["schemas"]["StartedMlJob"];
export type ScriptQuote = components["schemas"]["Quote"];
export type NewScriptJob = paths["/api/ml-jobs"]["post"]["requestBody"]["content"]["application/json"];

export const templatesQuery = queryOptions({
  queryKey: ["script templates"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/ml-jobs/templates", { signal })),
  staleTime: 60 * 60_000,
});

export async function startScript(body: NewScriptJob): Promise<StartedScript> {
  const started = await answerOf(api.POST("/api/ml-jobs", { body }));
  void forgetLists();
  return started;
}

/** Everything is checked as if it were started: where it would run, why there, what it would cost. */
export const quoteScript = (body: NewScriptJob): Promise<ScriptQuote> => answerOf(api.POST("/api/ml-jobs/quote", { body }));

type ForColab = { script: string; files: Record<string, string>; arguments: string[]; entry: string; name: string | null };

/** A notebook that runs the same script in Colab, as the text of its file. */
export async function colabNotebook(body: ForColab): Promise<string> {
  const { notebook } = await answerOf(api.POST("/api/scripts/colab-notebook", { body: { ...body, gpu: "T4" } }));
  return notebook;
}
