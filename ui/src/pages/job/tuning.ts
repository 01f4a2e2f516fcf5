/** What a fine-tuning run is about, from its config and from what it says about itself. */
import { number, record, text } from "@/api/free-json";
import { readSummary } from "@/api/job-summary";
import type { Job } from "@/api/types";
import { methodText } from "@/pages/checkpoints/method-text";
import { countText, settingText } from "@/text/numbers";

export const methodOf = ({ config }: Pick<Job, "config">): string | null => text(config.method);

/** Whether the run tunes a model that was there before. */
export const isTuning = ({ config }: Pick<Job, "config">) => text(record(config.model).path) !== null || record(config.data).kind === "examples";

const lastPart = (path: string) => path.replace(/\/+$/, "").split("/").at(-1) ?? path;

/** Names at the left, values at the right; what is not known is left out. */
export function tuningFacts(job: Job): [string, string][] {
  const { config } = job;
  const { values } = readSummary(job);
  const rows: [string, string][] = [];
  const add = (name: string, value: string | null) => value !== null && value !== "" && rows.push([name, value]);
  const path = text(record(config.model).path);
  add("Base model", job.modelName ?? (path && lastPart(path)));
  add("Dataset", job.datasetName ?? null);
  add("Method", methodWords(config));
  add("Trained share of tokens", shareText(values));
  add("Tokens seen", numberText(values["train/tokens_seen"] ?? null));
  const backend = text(config.backend);
  add("Trainer", backend === null || backend === "engine" ? null : backend === "trl" ? "TRL" : "TRL with Unsloth");
  return rows;
}

const numberText = (value: number | null) => (value === null ? null : countText(value));

function methodWords(config: Job["config"]): string | null {
  const method = methodText(text(config.method));
  const rank = number(record(config.lora).rank);
  if (method === null || method === "full" || rank === null) return method === "full" ? "full: every weight" : method;
  const alpha = number(record(config.lora).alpha);
  return `${method}, rank ${rank}${alpha === null ? "" : `, alpha ${settingText(alpha)}`}`;
}

/** Of the tokens that went through the model, those that it was taught. */
function shareText(values: Record<string, number>): string | null {
  const [trained, seen] = [values["train/trained_tokens"], values["train/tokens_seen"]];
  return trained !== undefined && seen ? `${((trained / seen) * 100).toFixed(1)} %` : null;
}

/** What makes this run faster or smaller, in words: what the run says is in force, and packing, which is a choice. */
export function optimizationsOf(job: Job): string[] {
  const { facts } = readSummary(job);
  const data = record(job.config.data);
  const optimizations = (text(facts.optimizations) ?? "").split(", ").filter(Boolean);
  return data.kind === "examples" && data.packing !== false ? ["packing", ...optimizations] : optimizations;
}
