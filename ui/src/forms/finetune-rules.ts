/** The form for fine-tuning: what it begins with, what it asks for, what each method takes when nothing is said. */
import type { Dataset, Method, Model } from "@/api/types";
import { type ConfigValues, type Json, valueAt } from "./job-fields";
import { type JobFormValues, jobRules } from "./job-rules";

/** A model of the catalogue that is not on this server yet stands in the list under this sign. */
export const FROM_HUB = "hub:";

export const USUAL_LENGTH = 2_048;
export const FINETUNE_CONFIG: Json = { method: "lora", epochs: 3, batch_size: 4, model: { context_length: USUAL_LENGTH } };

export const finetuneRules = jobRules.superRefine(({ datasetId, modelId }, context) => {
  const say = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
  if (modelId === "") say("modelId", "Choose a model.");
  if (modelId.startsWith(FROM_HUB)) say("modelId", "Fetch this model first.");
  if (datasetId === "") say("datasetId", "Choose a dataset.");
});

export const methodOf = (values: ConfigValues): Method => {
  const method = valueAt(values, "method");
  return method === "lora" || method === "qlora" ? method : "full";
};

/** What the server takes when no rate is said, for a model that has learned something. */
export const usualRate = (method: Method) => (method === "full" ? 2e-5 : 2e-4);

/** What has to happen before there is anything to plan. */
export function whatIsMissing({ datasetId, modelId }: Pick<JobFormValues, "datasetId" | "modelId">, model: Model | undefined, dataset: Dataset | undefined): string | null {
  if (modelId === "") return "Choose a model.";
  if (modelId.startsWith(FROM_HUB)) return "Fetch the model.";
  if (model && model.status !== "ready") return model.status === "failed" ? "Choose another model: this one could not be fetched." : "The model is on its way.";
  if (datasetId === "") return "Choose a dataset.";
  if (dataset && dataset.status !== "ready") return dataset.status === "failed" ? "Choose another dataset: this one cannot be used." : "The data is on its way.";
  if (dataset?.report && dataset.report.mapping === null) return "Say on the dataset’s page which column is what.";
  return null;
}

const LONGEST_NAME = 120;

export const usualName = (model: Pick<Model, "name"> | undefined, dataset: Pick<Dataset, "name"> | undefined) =>
  model && dataset ? `${model.name} on ${dataset.name}`.slice(0, LONGEST_NAME) : null;
