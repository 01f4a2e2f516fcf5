/** What each method would cost, in the words of its card. */
import { readPlan } from "@/api/plan";
import type { Method, PlanAnswer, PlanRequest } from "@/api/types";
import { withValue } from "@/forms/job-config";
import { bytesText } from "@/text/numbers";

export const METHODS: readonly Method[] = ["lora", "qlora", "full"];

export const WHAT: Record<Method, string> = {
  lora: "adapters on frozen weights",
  qlora: "adapters on 4-bit weights",
  full: "all weights are trained",
};

export const NAMES: Record<Method, string> = { lora: "LoRA", qlora: "QLoRA", full: "Full" };

/** The same request for another method. Settings of adapters go with the methods that have them. */
export function withMethod(request: PlanRequest, method: Method): PlanRequest {
  const config = withValue(request.config ?? {}, "method", method);
  return { ...request, config: method === "full" ? withValue(config, "lora", undefined) : config };
}

export function costText(answer: PlanAnswer | undefined): string | null {
  if (!answer) return null;
  const [memory] = readPlan(answer.plan)?.memories ?? [];
  if (answer.fits) return memory ? bytesText(memory.total) : null;
  return answer.nearest ? "does not fit like this" : null;
}
