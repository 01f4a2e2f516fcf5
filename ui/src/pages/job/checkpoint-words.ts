import { measured } from "@/api/free-json";
import type { Checkpoint } from "@/api/types";
import { metricText } from "@/text/numbers";

export function evalLossText({ metrics }: Pick<Checkpoint, "metrics">): string | null {
  const value = measured(metrics["eval/loss"] ?? metrics.eval_loss);
  return value === null ? null : metricText(value);
}
