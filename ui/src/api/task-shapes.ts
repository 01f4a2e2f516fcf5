/** Shapes of tasks, playground and comparison, written by hand until the server's description has them. */
import { sessionFetch } from "./client";
import { problemFromBody } from "./problem";
import type { Job } from "./types";

export type JobKind = "train" | "serve" | "evaluate" | "export" | "find_learning_rate";

export type AnyJob = Job & {
  kind: JobKind;
  result: Record<string, unknown> | null;
  parentId: string | null;
  datasetId: string | null;
  modelId: string | null;
};

export type AnyJobs = { items: AnyJob[]; total: number };

export type NewEvaluation = { checkpointId?: string | null; prompts: string[]; maxNewTokens?: number; maxBatches?: number; lmEvalTasks?: string[] };
export type NewExport = { checkpointId?: string | null; form: "adapter" | "merged" | "gguf"; dtype: "fp32" | "bf16" | "fp16"; prompts?: string[]; hub?: { repository: string; private: boolean } | null };

export type Difference = { path: string; values: unknown[] };
export type Comparison = { jobs: AnyJob[]; differences: Difference[] };

/** The server's answer to a request that the generated client does not know yet. */
export async function ask<T>(method: "GET" | "POST" | "DELETE", path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const request = new Request(new URL(path, window.location.origin), {
    method,
    credentials: "same-origin",
    signal,
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
  });
  const response = await sessionFetch(request);
  if (!response.ok) throw problemFromBody(response.status, await response.json().catch(() => null));
  return (response.status === 204 ? undefined : await response.json()) as T;
}
