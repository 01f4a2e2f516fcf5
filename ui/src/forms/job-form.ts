/**
 * A training config as a form and as JSON. The JSON is the truth: the form shows the fields it knows,
 * and changing one leaves everything else in the JSON as it was.
 */
import { ApiProblem, sentenceOf } from "@/api/problem";
import { NewJob as JobSchema, CamelProjectIn as ProjectSchema } from "@/api/request-fields";
import type { Job, NewJob, RequestedConfig } from "@/api/types";
import { applies, CONFIG_FIELDS, CONFIG_SCHEMA, type ConfigField, type ConfigValues, isObject, type Json, missingIn, MODEL_FOLDER, valueAt } from "./job-fields";
import { numberMistake, parseNumber, textRule } from "./rules";
import { z } from "./zod";

/** A copy of the tree with one value set; undefined removes it, and branches that become empty with it. */
export function withValue(tree: Json, path: string, value: unknown): Json {
  const [name = "", ...rest] = path.split(".");
  const { [name]: old, ...others } = tree;
  if (rest.length === 0) return value === undefined ? others : { ...tree, [name]: value };
  const branch = withValue(isObject(old) ? old : {}, rest.join("."), value);
  return Object.keys(branch).length === 0 ? others : { ...tree, [name]: branch };
}

/** What the form shows for a config. */
export function valuesOf(config: Json): ConfigValues {
  const values = CONFIG_FIELDS.reduce<Json>((collected, field) => withValue(collected, field.path, formValue(config, field)), {});
  return values as ConfigValues;
}

function formValue(config: Json, field: ConfigField): string {
  // A folder replaces the preset, whatever preset is named with it.
  if (field.path === "model.preset" && isText(valueAt(config, "model.path"))) return MODEL_FOLDER;
  const value = valueAt(config, field.path);
  if (value === undefined || value === null) return field.initial ?? "";
  if (!Array.isArray(value)) return String(value);
  return field.kind === "lines" ? value.map((line) => String(line).replaceAll("\n", NEW_LINE)).join("\n") : value.join(", ");
}

/** A line break inside one of the texts of a field with one text on each line. */
const NEW_LINE = "\\n";

const isText = (value: unknown) => typeof value === "string" && value !== "";

/** The config with what the form says; an empty field leaves the choice to the server. */
export function configOf(values: ConfigValues, base: Json): Json {
  return CONFIG_FIELDS.reduce((config, field) => {
    const typed = applies(field, values) ? String(valueAt(values, field.path) ?? "").trim() : "";
    const before = valueAt(base, field.path);
    // What stands for saying nothing is also what the server takes.
    if (typed === "" || (before === undefined && typed === field.initial)) {
      return before === null ? config : withValue(config, field.path, undefined);
    }
    return withValue(config, field.path, parsedValue(field, typed));
  }, base);
}

function parsedValue(field: ConfigField, typed: string): unknown {
  switch (field.kind) {
    case "whole":
    case "decimal":
      // What is no number yet goes as it is: the server says what is wrong with it.
      return parseNumber(typed) ?? typed;
    case "yes-no":
      return typed === "true";
    case "names":
      return typed === field.schema.word ? typed : typed.split(/[\s,]+/).filter(Boolean);
    case "lines":
      return typed.split("\n").map((line) => line.trim().replaceAll(NEW_LINE, "\n")).filter(Boolean);
    default:
      return typed;
  }
}

const snake = (name: string) => name.replaceAll(/[A-Z]/g, (character) => `_${character.toLowerCase()}`);

const PATHS = Object.keys(CONFIG_SCHEMA);

/** The server takes camelCase too; the form knows one spelling. Names that are no fields, such as columns, stay as they are. */
function withOwnNames(tree: Json, prefix = ""): Json {
  return Object.fromEntries(
    Object.entries(tree).map(([name, value]) => {
      const path = prefix + snake(name);
      const isGroup = PATHS.some((known) => known.startsWith(`${path}.`));
      return [isGroup || PATHS.includes(path) ? snake(name) : name, isGroup && isObject(value) ? withOwnNames(value, `${path}.`) : value];
    }),
  );
}

/** Parts that may be one word in a config, and the field that the word belongs to. */
const SHORT_FORMS: Record<string, string> = { memory: "mode", optimizer: "name" };

/** What is one word in a config becomes the field that the word belongs to. */
const spelledOut = (config: Json): Json =>
  Object.fromEntries(
    Object.entries(config).map(([name, value]) => {
      const field = SHORT_FORMS[name];
      return [name, field && typeof value === "string" ? { [field]: value } : value];
    }),
  );

type ParsedJson = { config: Json; mistake: null } | { config: null; mistake: string };

export function parseConfig(text: string): ParsedJson {
  if (text.trim() === "") return { config: {}, mistake: null };
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? { config: spelledOut(withOwnNames(value)), mistake: null } : { config: null, mistake: "The config must be a JSON object: { … }." };
  } catch (error) {
    return { config: null, mistake: `Invalid JSON: ${error instanceof Error ? error.message : "unreadable"}.` };
  }
}

export const NEW_PROJECT = "new";
export const OTHER_GPU = "other";

/** A dataset that is mixed in; an empty weight is the default. */
type MixedValues = { dataset_id: string; weight: string };

export type JobFormValues = {
  name: string;
  /** An id, or NEW_PROJECT. */
  project: string;
  projectName: string;
  /** Ids of one's own; "" where the config names paths instead. */
  dataset_id: string;
  /** More datasets that are trained together with the first. */
  mix: MixedValues[];
  /** "" where a part of the dataset is held out. */
  eval_dataset_id: string;
  model_id: string;
  /** "" for automatic, a GPU that is there, or OTHER_GPU. */
  gpu: string;
  otherGpu: string;
  host_memory: string;
  config: ConfigValues;
};

type Start = { config?: Json; projectName?: string; dataset_id?: string; mix?: MixedValues[]; eval_dataset_id?: string; model_id?: string; gpu_type?: string; host_memory?: number };

/** A new form starts empty: what nobody types is not sent, and the server's defaults hold. */
export const startingValues = (project: string, { config = {}, projectName = "", dataset_id = "", mix = [], eval_dataset_id = "", model_id = "", gpu_type, host_memory }: Start = {}): JobFormValues => ({
  name: "",
  project,
  projectName,
  dataset_id,
  mix,
  eval_dataset_id,
  model_id,
  gpu: gpu_type ? OTHER_GPU : "",
  otherGpu: gpu_type ?? "",
  host_memory: host_memory ? String(host_memory) : "",
  config: valuesOf(config),
});

/** Numbers of the config that the server would not take. */
export function numberMistakesIn(config: ConfigValues): { field: ConfigField; message: string }[] {
  return CONFIG_FIELDS.flatMap((field) => {
    if ((field.kind !== "whole" && field.kind !== "decimal") || !applies(field, config)) return [];
    const typed = String(valueAt(config, field.path) ?? "");
    const { word } = field.schema;
    if (word !== undefined && typed.trim() === word) return [];
    const message = numberMistake(typed, field.schema);
    return message ? [{ field, message: word && parseNumber(typed) === null ? `Enter a whole number, or ${word}.` : message }] : [];
  });
}

export const jobRules = z
  .object({
    name: textRule(JobSchema.name),
    project: z.string(),
    projectName: textRule(ProjectSchema.name),
    dataset_id: z.string(),
    mix: z.array(z.object({ dataset_id: z.string(), weight: z.string() })),
    eval_dataset_id: z.string(),
    model_id: z.string(),
    gpu: z.string(),
    otherGpu: textRule(JobSchema.gpu_type),
    host_memory: z.string(),
    config: z.custom<ConfigValues>(),
  })
  .superRefine((values, context) => {
    const say = (path: string, message: string) => context.addIssue({ code: "custom", path: path.split("."), message });
    if (values.project === NEW_PROJECT && values.projectName === "") say("projectName", "Enter a project name.");
    if (values.gpu === OTHER_GPU && values.otherGpu === "") say("otherGpu", "Enter a GPU name, such as H200.");
    const memory = numberMistake(values.host_memory, JobSchema.host_memory);
    if (memory) say("host_memory", memory);
    values.mix.forEach(({ dataset_id, weight }, index) => {
      const chosen = [values.dataset_id, ...values.mix.slice(0, index).map((each) => each.dataset_id)];
      if (dataset_id === "") say(`mix.${index}.dataset_id`, "Choose a dataset, or remove this line.");
      else if (chosen.includes(dataset_id)) say(`mix.${index}.dataset_id`, "This dataset is chosen twice. Choose it once and raise its weight.");
      const mistake = numberMistake(weight, CONFIG_SCHEMA["data.weight"]);
      if (mistake) say(`mix.${index}.weight`, mistake);
    });
    for (const { field, message } of numberMistakesIn(values.config)) say(`config.${field.path}`, message);
    for (const { path, sentence } of missingIn(values.config)) say(`config.${path}`, sentence);
  });

export const gpuTypeOf = ({ gpu, otherGpu }: Pick<JobFormValues, "gpu" | "otherGpu">) => (gpu === OTHER_GPU ? otherGpu.trim() : gpu) || null;

/** What is given by id. A config that names paths instead says nothing about them. */
export const idsOf = ({ dataset_id, mix, eval_dataset_id, model_id }: Pick<JobFormValues, "dataset_id" | "mix" | "eval_dataset_id" | "model_id">) => ({
  ...(dataset_id && { dataset_id }),
  ...(mix.length > 0 && { mix: mix.filter((each) => each.dataset_id !== "").map((each) => ({ dataset_id: each.dataset_id, ...(parseNumber(each.weight) !== null && { weight: parseNumber(each.weight) as number }) })) }),
  ...(eval_dataset_id && { eval_dataset_id }),
  ...(model_id && { model_id }),
});

/** Before the id of a dataset, where a project names its training data. */
export const DATASET = "dataset://";

/** The dataset that a project's data path stands for, or null. */
export const datasetIdOf = (path: string | null | undefined) => (path?.startsWith(DATASET) ? path.slice(DATASET.length) : null);

/** What is sent to start the job: what somebody set, and nothing else. */
export function newJobBody(values: JobFormValues, config: Json, parameters: number | null): NewJob {
  const name = values.name.trim();
  const gpu_type = gpuTypeOf(values);
  const host_memory = parseNumber(values.host_memory);
  return {
    // Typed here, where the JSON editor's text may hold anything; the server says what is wrong with it.
    config: config as RequestedConfig,
    ...idsOf(values),
    ...(name && { name }),
    ...(gpu_type && { gpu_type }),
    ...(host_memory !== null && { host_memory }),
    ...(values.project === NEW_PROJECT ? { project: newProject(values, config, parameters) } : { project_id: values.project }),
  };
}

/** A new project is described by its first job: its size is what the plan says. */
function newProject({ projectName }: JobFormValues, config: Json, parameters: number | null): NewJob["project"] {
  const dataPath = valueAt(config, "data.train_path");
  return {
    name: projectName.trim(),
    model_architecture: valueAt(config, "model.architecture") ? "custom" : "transformer",
    // Not known until there is a plan, and then nothing is said.
    ...(parameters && { model_size: Number((parameters / 1e9).toPrecision(3)) }),
    ...(typeof dataPath === "string" && { training_data_path: dataPath }),
  };
}

type JobFailure = { fields: { path: string; message: string }[]; others: string[] };

const FORM_FIELDS: Record<string, string> = { name: "name", project_id: "project", dataset_id: "dataset_id", eval_dataset_id: "eval_dataset_id", model_id: "model_id", "project.name": "projectName", host_memory: "host_memory" };

/** Sorts a refusal: what belongs to a field of the form, and what is shown above the form with its path in the config. */
export function jobFailure(error: unknown, gpu: string): JobFailure {
  if (!(error instanceof ApiProblem) || error.fieldErrors.length === 0) return { fields: [], others: [sentenceOf(error)] };
  const failure: JobFailure = { fields: [], others: [] };
  for (const { field, message } of error.fieldErrors) {
    const path = field === "gpu_type" ? (gpu === OTHER_GPU ? "otherGpu" : "gpu") : /^mix\.\d+\./.test(field) ? field : FORM_FIELDS[field];
    const isConfig = CONFIG_FIELDS.some((known) => `config.${known.path}` === field);
    if (path || isConfig) failure.fields.push({ path: path ?? field, message });
    // A person cannot correct the path; the sentence is enough.
    else failure.others.push(field === "offer" ? message : `${field}: ${message}`);
  }
  return failure;
}

type Like = { config: Json; dataset_id?: string; mix?: MixedValues[]; eval_dataset_id?: string; model_id?: string; gpu_type?: string; host_memory?: number };

/** What a form for a job like another one starts with: what somebody set, and no default. What was given by id is named by id again, not by its path. */
export function likeJob(job: Pick<Job, "requested_config" | "dataset_id" | "mix" | "eval_dataset_id" | "model_id" | "gpu_type" | "host_memory">): Like {
  let config = spelledOut(job.requested_config as Json);
  if (job.dataset_id) config = withValue(config, "data.train_path", undefined);
  if (job.eval_dataset_id) config = withValue(config, "data.eval_path", undefined);
  const folder = valueAt(config, "model.path");
  if (job.model_id && typeof folder === "string") {
    const tokenizer = valueAt(config, "data.tokenizer.path");
    // The model brings it along.
    if (typeof tokenizer === "string" && tokenizer.startsWith(folder)) config = withValue(config, "data.tokenizer", undefined);
    config = withValue(config, "model.path", undefined);
  }
  const mix = job.mix.length > 0 ? job.mix.map(({ dataset_id, weight }) => ({ dataset_id, weight: String(weight) })) : undefined;
  return { config, dataset_id: job.dataset_id ?? undefined, mix, eval_dataset_id: job.eval_dataset_id ?? undefined, model_id: job.model_id ?? undefined, gpu_type: job.gpu_type ?? undefined, host_memory: job.host_memory ?? undefined };
}
