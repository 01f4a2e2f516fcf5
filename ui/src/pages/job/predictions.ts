/** What was planned beside what is measured. */
import { number } from "@/api/free-json";
import type { Summary } from "@/api/job-summary";
import type { MemoryUse, Plan } from "@/api/plan";
import { ENGINE_MEMORY } from "@/curves/engine-names";
import { secondsText } from "@/text/duration";
import { bytesText, countText } from "@/text/numbers";

export type Prediction = { name: string; planned: number; measured: number | null; text: (value: number) => string };

/** The run plans again where it happens, on what it measures there; its own figures go before the job's. */
export function predictionsOf(plan: Plan, summary: Summary, tokensPerSecond: number | null): Prediction[] {
  const { facts } = summary;
  const predictions: Prediction[] = plan.memories.map((memory) => memoryPrediction(plan, memory, summary));
  const stepTokens = number(facts.tokens_per_step) ?? plan.tokensPerStep;
  const seconds = number(facts.planned_step_seconds) ?? plan.stepSeconds;
  if (seconds !== null) predictions.push({ name: "Step", planned: seconds, measured: stepTokens && tokensPerSecond ? stepTokens / tokensPerSecond : null, text: secondsText });
  const speed = seconds !== null && stepTokens !== null ? stepTokens / seconds : plan.tokensPerSecond;
  if (speed !== null) predictions.push({ name: "Tokens per second", planned: speed, measured: tokensPerSecond, text: countText });
  return predictions;
}

function memoryPrediction(plan: Plan, memory: MemoryUse, { facts, values, system }: Summary): Prediction {
  const row = { name: `${memory.name} memory`, text: bytesText };
  const reported = values[ENGINE_MEMORY[memory.name]];
  if (memory.name === "Host") {
    return { ...row, planned: number(facts.planned_host_bytes) ?? memory.total, measured: reported ?? system["process/ram"] ?? null };
  }
  const reserved = number(facts.planned_gpu_bytes) ?? plan.gpuReserved;
  if (reported !== undefined && reserved !== null) return { ...row, planned: reserved, measured: reported };
  // Without the engine's own figure: the whole card's, which has the driver's share in it.
  return { ...row, planned: memory.total, measured: system["gpu/0/memory_used"] ?? null };
}

/** "+3 %": how far the measured value lies from the planned. */
export function differenceText({ planned, measured }: Prediction): string {
  if (measured === null || planned <= 0) return "";
  const percent = Math.round((measured / planned - 1) * 100);
  return percent === 0 ? "as planned" : `${percent > 0 ? "+" : "−"}${countText(Math.abs(percent))} %`;
}
