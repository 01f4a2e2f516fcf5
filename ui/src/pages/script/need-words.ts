import type { Confidence, Evidence, Found, Requirements } from "@/api/scripts";
import { countText, parametersText } from "@/text/numbers";

/** One thing a script needs: what, how sure, why, and the lines that say so. */
export type NeedRow = { name: string; value: string; confidence: Confidence; reason: string | null; evidence: Evidence[] };

const METHODS = { full: "all weights", lora: "LoRA", qlora: "QLoRA" };
const PURPOSES = { train: "training", infer: "running a model", other: "something else" };

/** Everything but the three figures that can be overruled. Where nothing was found there is no row. */
export function needRows(found: Requirements): NeedRow[] {
  const rows: NeedRow[] = [];
  const one = <Value>(name: string, given: Found<Value> | null, text: (value: Value) => string | null) => {
    const value = given && text(given.value);
    if (given && value !== null && value !== "") rows.push({ name, value: value ?? "", confidence: given.confidence, reason: given.reason, evidence: given.evidence });
  };
  const several = (name: string, given: Found<string>[]) => {
    if (given.length === 0) return;
    rows.push({ name, value: given.map(({ value }) => value).join(", "), confidence: leastSure(given), reason: given.map(({ reason }) => reason).find(Boolean) ?? null, evidence: given.flatMap(({ evidence }) => evidence) });
  };
  one("What it does", found.purpose, (purpose) => PURPOSES[purpose]);
  several("Model", found.models);
  one("Parameters", found.parameters, parametersText);
  one("Trained", found.method, (method) => METHODS[method]);
  one("Rows at once", found.batch, countText);
  one("Gathered over", found.accumulation, (count) => (count > 1 ? `${countText(count)} batches` : null));
  one("Tokens a row", found.sequence, countText);
  one("Precision", found.dtype, String);
  one("Steps", found.iterations, countText);
  one("Epochs", found.epochs, countText);
  several("Data", found.datasets);
  several("Libraries", found.frameworks);
  several("Packages", found.packages);
  several("Several GPUs by", found.parallelism);
  several("Reports to", found.trackers);
  one("Several machines", found.multiNode, (yes) => (yes ? "yes" : null));
  one("At the keyboard", found.interactive, (yes) => (yes ? "needs somebody" : null));
  one("Saves with", found.checkpoints, ({ savesWith }) => savesWith);
  one("Goes on with", found.checkpoints, ({ resumesWith }) => resumesWith ?? "nothing: it starts anew after a stop");
  one("TensorBoard", found.writesTensorboard, (yes) => (yes ? "yes" : null));
  return rows;
}

const ORDER: Confidence[] = ["stated", "derived", "assumed"];

const leastSure = (given: Found<string>[]): Confidence => ORDER[Math.max(...given.map(({ confidence }) => ORDER.indexOf(confidence)))] ?? "assumed";

/** The lines of a file that something was found on. */
export function markedLines(found: Requirements | null, file: string | null, entry: string | null): Set<number> {
  if (found === null) return new Set();
  const all = [...needRows(found), found.gpus, found.gpuMemoryGb, found.durationHours].flatMap(({ evidence }) => evidence);
  return new Set(all.filter((each) => each.line > 0 && (each.file ?? entry) === file).map(({ line }) => line));
}
