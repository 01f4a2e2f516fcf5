import type { Confidence, Evidence, Detected, Requirements } from "@/api/scripts";
import { countText, parametersText } from "@/text/numbers";

/** One thing a script needs: what, how sure, why, and the lines that say so. */
export type NeedRow = { name: string; value: string; confidence: Confidence; reason: string | null; evidence: Evidence[] };

const METHODS = { full: "all weights", lora: "LoRA", qlora: "QLoRA" };
const PURPOSES = { train: "training", infer: "running a model", other: "something else" };

/** Everything but the three figures that can be overruled. Where nothing was found there is no row. */
export function needRows(requirements: Requirements): NeedRow[] {
  const rows: NeedRow[] = [];
  const one = <Value>(name: string, given: Detected<Value> | null, text: (value: Value) => string | null) => {
    const value = given && text(given.value);
    if (given && value !== null && value !== "") rows.push({ name, value: value ?? "", confidence: given.confidence, reason: given.reason, evidence: given.evidence });
  };
  const several = (name: string, given: Detected<string>[]) => {
    if (given.length === 0) return;
    rows.push({ name, value: given.map(({ value }) => value).join(", "), confidence: leastSure(given), reason: given.map(({ reason }) => reason).find(Boolean) ?? null, evidence: given.flatMap(({ evidence }) => evidence) });
  };
  one("What it does", requirements.purpose, (purpose) => PURPOSES[purpose]);
  several("Model", requirements.models);
  one("Parameters", requirements.parameters, parametersText);
  one("Trained", requirements.method, (method) => METHODS[method]);
  one("Rows at once", requirements.batch, countText);
  one("Gathered over", requirements.accumulation, (count) => (count > 1 ? `${countText(count)} batches` : null));
  one("Tokens a row", requirements.sequence, countText);
  one("Precision", requirements.dtype, String);
  one("Steps", requirements.iterations, countText);
  one("Epochs", requirements.epochs, countText);
  several("Data", requirements.datasets);
  several("Libraries", requirements.frameworks);
  several("Packages", requirements.packages);
  several("Several GPUs by", requirements.parallelism);
  several("Reports to", requirements.trackers);
  one("Several machines", requirements.multiNode, (yes) => (yes ? "yes" : null));
  one("At the keyboard", requirements.interactive, (yes) => (yes ? "needs somebody" : null));
  one("Saves with", requirements.checkpoints, ({ savesWith }) => savesWith);
  one("Goes on with", requirements.checkpoints, ({ resumesWith }) => resumesWith ?? "nothing: it starts anew after a stop");
  one("TensorBoard", requirements.writesTensorboard, (yes) => (yes ? "yes" : null));
  return rows;
}

const ORDER: Confidence[] = ["stated", "derived", "assumed"];

const leastSure = (given: Detected<string>[]): Confidence => ORDER[Math.max(...given.map(({ confidence }) => ORDER.indexOf(confidence)))] ?? "assumed";

/** The lines of a file that something was found on. */
export function markedLines(requirements: Requirements | null, file: string | null, entry: string | null): Set<number> {
  if (requirements === null) return new Set();
  const all = [...needRows(requirements), requirements.gpus, requirements.gpuMemoryGb, requirements.durationHours].flatMap(({ evidence }) => evidence);
  return new Set(all.filter((each) => each.line > 0 && (each.file ?? entry) === file).map(({ line }) => line));
}
