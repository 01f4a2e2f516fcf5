/** The fine-tuning form: initial values, required fields, and the memory that each method needs. */
import { memoriesOf } from "@/api/plan";
import { NewJob } from "@/api/request-fields";
import type { Dataset, Method, Model, PlanAnswer, PlanRequest, RequestedConfig } from "@/api/types";
import type { Json } from "@/forms/job-fields";
import { type JobFormValues, jobRules, withValue } from "@/forms/job-form";
import { bytesText } from "@/text/numbers";

/** A model of the catalogue that is not on this server yet stands in the list under this sign. */
export const FROM_HUB = "hub:";

/** The form shows LoRA as chosen; everything else is the server's default until somebody types. */
export const FINETUNE_CONFIG: Json = { method: "lora" };

export const finetuneRules = jobRules.superRefine(({ dataset_id, model_id }, context) => {
  const say = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
  if (model_id === "") say("model_id", "Choose a model.");
  if (model_id.startsWith(FROM_HUB)) say("model_id", "Download this model first.");
  if (dataset_id === "") say("dataset_id", "Choose a dataset.");
});

/** What a dataset lacks before there is anything to plan. `called`: how the form calls it. */
function whatDatasetLacks({ status, report }: Dataset, called: string): string | null {
  if (status === "failed") return `Choose another ${called}: this dataset cannot be used.`;
  if (status !== "ready") return `Wait until the ${called} is ready.`;
  return report && report.mapping === null ? `Assign the columns on the page of the ${called}.` : null;
}

/** `gone`: what an old link or draft names, and the lists do not have any more. */
type Chosen = { model?: Model; dataset?: Dataset; mixed?: Dataset[]; held?: Dataset; gone?: "model" | "dataset" };

/** What has to happen before there is anything to plan. */
export function whatIsMissing({ dataset_id, mix, model_id }: Pick<JobFormValues, "dataset_id" | "mix" | "model_id">, { model, dataset, mixed = [], held, gone }: Chosen): string | null {
  if (model_id === "") return "Choose a model.";
  if (gone) return `Choose another ${gone}: this ${gone} no longer exists.`;
  if (model_id.startsWith(FROM_HUB)) return "Download the model.";
  if (model && model.status !== "ready") return model.status === "failed" ? "Choose another model: this model cannot be used." : "Wait until the model is ready.";
  if (dataset_id === "") return "Choose a dataset.";
  if (mix.some((each) => each.dataset_id === "")) return "Choose the dataset to mix in.";
  const called = [...(dataset ? [[dataset, "dataset"] as const] : []), ...mixed.map((each) => [each, "dataset to mix in"] as const), ...(held ? [[held, "validation dataset"] as const] : [])];
  return called.map(([each, name]) => whatDatasetLacks(each, name)).find((sentence) => sentence !== null) ?? null;
}

export const usualName = (model: Pick<Model, "name"> | undefined, dataset: Pick<Dataset, "name"> | undefined) =>
  model && dataset ? `${model.name} on ${dataset.name}`.slice(0, NewJob.name.maxLength) : null;

/** Adapters first: they are the usual way to fine-tune. */
export const METHODS: readonly Method[] = ["lora", "qlora", "full"];

/** The same request for another method. Settings of adapters go with the methods that have them. */
export function withMethod(request: PlanRequest, method: Method): PlanRequest {
  const config = withValue(request.config ?? {}, "method", method);
  return { ...request, config: (method === "full" ? withValue(config, "lora", undefined) : config) as RequestedConfig };
}

export function costText(answer: PlanAnswer | undefined): string | null {
  if (!answer) return null;
  const [memory] = answer.plan ? memoriesOf(answer.plan) : [];
  if (answer.fits) return memory ? bytesText(memory.total) : null;
  return answer.needs ? "does not fit" : null;
}
