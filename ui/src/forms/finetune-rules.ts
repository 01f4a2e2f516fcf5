/** The form for fine-tuning: what it begins with, and what it asks for. */
import type { Dataset, Model } from "@/api/types";
import type { Json } from "./job-fields";
import { type JobFormValues, jobRules } from "./job-rules";

/** A model of the catalogue that is not on this server yet stands in the list under this sign. */
export const FROM_HUB = "hub:";

/** The form shows LoRA as chosen; everything else is the server's default until somebody types. */
export const FINETUNE_CONFIG: Json = { method: "lora" };

export const finetuneRules = jobRules.superRefine(({ datasetId, modelId }, context) => {
  const say = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
  if (modelId === "") say("modelId", "Choose a model.");
  if (modelId.startsWith(FROM_HUB)) say("modelId", "Fetch this model first.");
  if (datasetId === "") say("datasetId", "Choose a dataset.");
});

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
