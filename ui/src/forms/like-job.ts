import type { Job } from "@/api/types";
import { spelledOut, withValue } from "./job-config";
import { type Json, valueAt } from "./job-fields";

type Like = { config: Json; datasetId?: string; modelId?: string; gpuType?: string; hostMemory?: number };

/** What a form for a job like another one starts with: what somebody set, and no default. What was given by id is named by id again, not by its path. */
export function likeJob(job: Pick<Job, "requestedConfig" | "datasetId" | "modelId" | "gpuType" | "hostMemory">): Like {
  let config = spelledOut(job.requestedConfig as Json);
  if (job.datasetId) config = withValue(config, "data.train_path", undefined);
  const folder = valueAt(config, "model.path");
  if (job.modelId && typeof folder === "string") {
    const tokenizer = valueAt(config, "data.tokenizer.path");
    // The model brings it along.
    if (typeof tokenizer === "string" && tokenizer.startsWith(folder)) config = withValue(config, "data.tokenizer", undefined);
    config = withValue(config, "model.path", undefined);
  }
  return { config, datasetId: job.datasetId ?? undefined, modelId: job.modelId ?? undefined, gpuType: job.gpuType ?? undefined, hostMemory: job.hostMemory ?? undefined };
}
