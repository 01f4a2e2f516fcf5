/** Jobs that run a person's own files, and templates to start from. The addresses spell in snake_case, both ways. */
import { queryOptions } from "@tanstack/react-query";
import { askJson } from "./ask";
import { forgetLists } from "./jobs";

export type ScriptTemplate = {
  name: string;
  title: string;
  provider: string;
  description: string;
  files: { path: string; text: string }[];
  arguments: string[];
  datasets: string[];
  gpu: string | null;
};

export type NewScriptJob = {
  files: ({ path: string; text: string } | { path: string; base64: string })[];
  entry: string;
  arguments: string[];
  name: string | null;
  project_id: string | null;
  provider: string;
  offer: { provider: string; gpu: string; gpus: number; kind: string; region: string | null } | null;
  requirements: Record<string, number> | null;
  datasets: string[];
  budget: number | null;
  max_hours: number | null;
  network: boolean;
  confirmed: boolean;
};

export type StartedScript = { job_id: string; provider: string; status_url: string; reasons: string[] };

export const templatesQuery = queryOptions({
  queryKey: ["script templates"],
  queryFn: ({ signal }) => askJson<ScriptTemplate[]>("GET", "/api/ml-jobs/templates", undefined, signal),
  staleTime: 60 * 60_000,
});

export async function startScript(body: NewScriptJob): Promise<StartedScript> {
  const started = await askJson<StartedScript>("POST", "/api/ml-jobs", body);
  void forgetLists();
  return started;
}

/** A notebook that runs the same script in Colab, as the text of its file. */
export async function colabNotebook(body: { script: string; files: Record<string, string>; arguments: string[]; entry: string; name: string | null }): Promise<string> {
  const { notebook } = await askJson<{ notebook: string }>("POST", "/api/scripts/colab-notebook", body);
  return notebook;
}
