import type { Checkpoint } from "@/api/types";
import { metricText } from "@/text/numbers";

export function evalLossText({ metrics }: Pick<Checkpoint, "metrics">): string | null {
  const value = metrics["eval/loss"] ?? metrics.eval_loss;
  return typeof value === "number" ? metricText(value) : null;
}
