import { ApiProblem, sentenceOf } from "@/api/problem";
import type { NewJob } from "@/api/types";
import { valuesOf } from "./job-config";
import { CONFIG_FIELDS, type ConfigValues, type Json, applies, missingIn, valueAt } from "./job-fields";
import { numberMistake, parseNumber } from "./number-rules";
import { z } from "./zod";

export const NEW_PROJECT = "new";
export const OTHER_GPU = "other";

export type JobFormValues = {
  name: string;
  /** An id, or NEW_PROJECT. */
  project: string;
  projectName: string;
  /** Ids of one's own; "" where the config names paths instead. */
  datasetId: string;
  modelId: string;
  /** "" for automatic, a GPU that is there, or OTHER_GPU. */
  gpu: string;
  otherGpu: string;
  hostMemory: string;
  config: ConfigValues;
};

type Start = { config?: Json; projectName?: string; datasetId?: string; modelId?: string; gpuType?: string; hostMemory?: number };

/** A new form starts empty: what nobody types is not sent, and the server's defaults hold. */
export const startingValues = (project: string, { config = {}, projectName = "", datasetId = "", modelId = "", gpuType, hostMemory }: Start = {}): JobFormValues => ({
  name: "",
  project,
  projectName,
  datasetId,
  modelId,
  gpu: gpuType ? OTHER_GPU : "",
  otherGpu: gpuType ?? "",
  hostMemory: hostMemory ? String(hostMemory) : "",
  config: valuesOf(config),
});

export const jobRules = z
  .object({
    name: z.string().trim().max(120, "A name can have at most 120 characters."),
    project: z.string(),
    projectName: z.string().trim().max(120, "A name can have at most 120 characters."),
    datasetId: z.string(),
    modelId: z.string(),
    gpu: z.string(),
    otherGpu: z.string().trim().max(64, "At most 64 characters."),
    hostMemory: z.string(),
    config: z.custom<ConfigValues>(),
  })
  .superRefine((values, context) => {
    const say = (path: string, message: string) => context.addIssue({ code: "custom", path: path.split("."), message });
    if (values.project === NEW_PROJECT && values.projectName === "") say("projectName", "Give the project a name.");
    if (values.gpu === OTHER_GPU && values.otherGpu === "") say("otherGpu", "Name the GPU, such as H200.");
    const memory = numberMistake(values.hostMemory, { least: 1, most: 1_000_000 }, true);
    if (memory) say("hostMemory", memory);
    for (const field of CONFIG_FIELDS) {
      if ((field.kind !== "whole" && field.kind !== "decimal") || !applies(field, values.config)) continue;
      const typed = String(valueAt(values.config, field.path) ?? "");
      if (field.word !== undefined && typed.trim() === field.word) continue;
      const mistake = numberMistake(typed, field.limits ?? {}, field.kind === "whole");
      if (mistake) say(`config.${field.path}`, field.word && parseNumber(typed) === null ? `Enter a whole number, or ${field.word}.` : mistake);
    }
    for (const { path, sentence } of missingIn(values.config)) say(`config.${path}`, sentence);
  });

export const gpuTypeOf = ({ gpu, otherGpu }: Pick<JobFormValues, "gpu" | "otherGpu">) => (gpu === OTHER_GPU ? otherGpu.trim() : gpu) || null;

/** What is given by id. A config that names paths instead says nothing about them. */
export const idsOf = ({ datasetId, modelId }: Pick<JobFormValues, "datasetId" | "modelId">) => ({ ...(datasetId && { datasetId }), ...(modelId && { modelId }) });

/** What is sent to start the job. A new project is described by the job: its size is what the plan says. */
export function newJobBody(values: JobFormValues, config: Json, parameters: number | null): NewJob {
  const inNewProject = values.project === NEW_PROJECT;
  const dataPath = valueAt(config, "data.train_path");
  return {
    name: values.name.trim() || null,
    config,
    ...idsOf(values),
    kind: "train",
    gpuType: gpuTypeOf(values),
    hostMemory: parseNumber(values.hostMemory),
    maxAttempts: 5,
    projectId: inNewProject ? null : values.project,
    project: inNewProject
      ? {
          name: values.projectName.trim(),
          description: null,
          modelArchitecture: "transformer",
          modelSize: Math.max(0.000001, Number(((parameters ?? 1_000_000) / 1e9).toPrecision(3))),
          trainingDataPath: typeof dataPath === "string" ? dataPath : null,
        }
      : null,
  };
}

export type JobFailure = { fields: { path: string; message: string }[]; others: string[] };

const FORM_FIELDS: Record<string, string> = { name: "name", projectId: "project", datasetId: "datasetId", modelId: "modelId", "project.name": "projectName", hostMemory: "hostMemory" };

/** Sorts a refusal: what belongs to a field of the form, and what is said above it with its place in the config. */
export function jobFailure(error: unknown, gpu: string): JobFailure {
  if (!(error instanceof ApiProblem) || error.fieldErrors.length === 0) return { fields: [], others: [sentenceOf(error)] };
  const failure: JobFailure = { fields: [], others: [] };
  for (const { field, message } of error.fieldErrors) {
    const path = field === "gpuType" ? (gpu === OTHER_GPU ? "otherGpu" : "gpu") : FORM_FIELDS[field];
    const isConfig = CONFIG_FIELDS.some((known) => `config.${known.path}` === field);
    if (path || isConfig) failure.fields.push({ path: path ?? field, message });
    // The place is no text that one could correct; its sentence stands for itself.
    else failure.others.push(field === "offer" ? message : `${field}: ${message}`);
  }
  return failure;
}
