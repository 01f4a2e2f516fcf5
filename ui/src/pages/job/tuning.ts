/** What a fine-tuning run is about, from its config and from what it says about itself. */
import { number, record, text } from "@/api/free-json";
import { readSummary } from "@/api/job-summary";
import type { Job } from "@/api/types";
import { methodText } from "@/pages/checkpoints/method-text";
import { countText, parametersText, settingText } from "@/text/numbers";

export const methodOf = ({ config }: Pick<Job, "config">): string | null => text(config.method);

/** Whether the run tunes a model that was there before. */
export const isTuning = ({ config }: Pick<Job, "config">) => text(record(config.model).path) !== null || record(config.data).kind === "examples";

const lastPart = (path: string) => path.replace(/\/+$/, "").split("/").at(-1) ?? path;

/** Names at the left, values at the right; what is not known is left out. */
export function tuningFacts(job: Job): [string, string][] {
  const { config } = job;
  const { facts, values } = readSummary(job);
  const found: [string, string][] = [];
  const add = (name: string, value: string | null) => value !== null && value !== "" && found.push([name, value]);
  const path = text(record(config.model).path);
  add("Base model", job.modelName ?? (path && lastPart(path)));
  add("Dataset", job.datasetName ?? null);
  add("Method", methodWords(config));
  add("Trained parameters", trainedParameters(facts));
  add("Trained share of tokens", shareText(facts));
  add("Tokens seen", numberText(values["train/tokens_seen"] ?? null));
  const backend = text(config.backend);
  add("Trainer", backend === null || backend === "engine" ? null : backend === "trl" ? "TRL" : "TRL with Unsloth");
  return found;
}

const numberText = (value: number | null) => (value === null ? null : countText(value));

function methodWords(config: Job["config"]): string | null {
  const method = methodText(text(config.method));
  const rank = number(record(config.lora).rank);
  if (method === null || method === "full" || rank === null) return method === "full" ? "full: every weight" : method;
  const alpha = number(record(config.lora).alpha);
  return `${method}, rank ${rank}${alpha === null ? "" : `, alpha ${settingText(alpha)}`}`;
}

function trainedParameters(facts: Record<string, unknown>): string | null {
  const [trained, all] = [number(facts.trained_parameters), number(facts.parameters)];
  if (trained === null) return null;
  return all ? `${parametersText(trained)} of ${parametersText(all)}` : parametersText(trained);
}

function shareText(facts: Record<string, unknown>): string | null {
  const share = number(facts.trained_share);
  if (share !== null) return `${(share * 100).toFixed(1)} %`;
  const [trained, all] = [number(facts.trained_tokens), number(facts.train_tokens)];
  return trained !== null && all ? `${((trained / all) * 100).toFixed(1)} %` : null;
}

const KNOWN: [fact: string, name: string][] = [
  ["packing", "packing"],
  ["chunked_loss", "chunked loss"],
  ["compiled", "compiled layers"],
  ["checkpointing", "activation checkpointing"],
  ["flash_attention", "flash attention"],
];

/** What makes this run faster or smaller, in words; only what the run says is in force. */
export function optimizationsOf(job: Job): string[] {
  const { facts } = readSummary(job);
  const said = Array.isArray(facts.optimizations) ? facts.optimizations.map(String) : [];
  const known = KNOWN.flatMap(([fact, name]) => {
    const value = facts[fact] ?? (fact === "packing" && record(job.config.data).kind === "examples" ? record(job.config.data).packing : undefined);
    return value === true ? [name] : typeof value === "string" && value !== "" && value !== "none" ? [`${name}: ${value}`] : [];
  });
  return [...new Set([...said, ...known])];
}
