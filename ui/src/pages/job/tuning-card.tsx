/** What a fine-tuning run trains: base model, method, optimizations. */
import { TrainConfig as ConfigSchema } from "@/api/config-fields";
import { lastValue, text } from "@/api/summary";
import type { Job, RunSummary, TrainConfig } from "@/api/types";
import { type CurveStore, useRecent } from "@/charts/curve-store";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/components/figures";
import { Badge } from "@/components/notice";
import { choiceText } from "@/forms/job-fields";
import { countText, settingText } from "@/text/numbers";

/** How a model was tuned, as people write it. */
export const methodText = (method: string | null): string | null => method && choiceText("method", method);

export const methodOf = ({ config }: Pick<Job, "config">): string | null => config?.method ?? null;

/** Whether the run tunes a model that was there before. */
export const isTuning = ({ config }: Pick<Job, "config">) => config !== null && (config.model.path !== null || config.data.kind === "examples");

const lastPart = (path: string) => path.replace(/\/+$/, "").split("/").at(-1) ?? path;

/** Names at the left, values at the right; what is not known is left out. */
export function tuningFacts(job: Job): [string, string][] {
  const { config, summary } = job;
  const rows: [string, string][] = [];
  const add = (name: string, value: string | null) => value !== null && value !== "" && rows.push([name, value]);
  const path = config?.model.path ?? null;
  add("Base model", job.model_name ?? (path && lastPart(path)));
  add(job.mix.length > 0 ? "Datasets" : "Dataset", datasetsText(job));
  add("Method", config && methodWords(config));
  add("Share of trained tokens", shareText(summary));
  add("Tokens seen", numberText(lastValue(summary, "train/tokens_seen") ?? null));
  const backend = config?.backend ?? null;
  add("Backend", backend === null || backend === ConfigSchema.backend.default ? null : choiceText("backend", backend));
  return rows;
}

/** The datasets, with their weights where there are several. */
function datasetsText({ dataset_name, mix, config }: Job): string | null {
  if (mix.length === 0) return dataset_name;
  const all = [{ name: dataset_name, weight: config?.data.weight ?? 1 }, ...mix];
  return all.map(({ name, weight }) => `${name ?? "a deleted dataset"} (weight ${settingText(weight)})`).join(", ");
}

const numberText = (value: number | null) => (value === null ? null : countText(value));

function methodWords({ method, lora }: TrainConfig): string {
  const name = choiceText("method", method);
  return method === "full" ? `${name}: all weights` : `${name}, rank ${lora.rank}, alpha ${settingText(lora.alpha)}`;
}

/** Of the tokens that went through the model, those that it was taught. */
function shareText(summary: RunSummary): string | null {
  const [trained, seen] = [lastValue(summary, "train/trained_tokens"), lastValue(summary, "train/tokens_seen")];
  return trained !== undefined && seen ? `${((trained / seen) * 100).toFixed(1)} %` : null;
}

/** What makes this run faster or smaller, in words: what the run says is in force, and packing, which is a choice. */
export function optimizationsOf(job: Job): string[] {
  const data = job.config?.data;
  const optimizations = (text(job.summary.facts.optimizations) ?? "").split("; ").filter(Boolean);
  return data?.kind === "examples" && data.packing ? ["packing", ...optimizations] : optimizations;
}

/** What is tuned, on what, and what makes it fast. Absent for a model that is trained from nothing. */
export function TuningCard({ job, store }: { job: Job; store: CurveStore }) {
  const speed = useRecent(store, "train/tokens_per_second");
  const optimizations = optimizationsOf(job);
  const facts = tuningFacts(job);
  if (speed !== null) facts.push(["Measured speed", `${countText(speed)} tokens/s`]);
  return (
    <Card>
      <CardHeader title="Fine-tuning" />
      <Facts wide facts={facts} />
      {optimizations.length > 0 && (
        <p className="mt-3 flex flex-wrap items-center gap-1.5 text-xs text-dim">
          Active optimizations:
          {optimizations.map((name) => (
            <Badge key={name} tone="teal">
              {name}
            </Badge>
          ))}
        </p>
      )}
    </Card>
  );
}
