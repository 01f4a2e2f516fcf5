/** How a model picks its next token, as typed and as sent. */
import { numberMistake, parseNumber } from "@/forms/number-rules";
import type { Sampled } from "@/api/playground";

export type SamplingTexts = { temperature: string; topP: string; maxTokens: string; stop: string; seed: string; system: string };

export const STARTING: SamplingTexts = { temperature: "0.7", topP: "1", maxTokens: "256", stop: "", seed: "", system: "" };

const LIMITS = {
  temperature: [{ least: 0, most: 2 }, false],
  topP: [{ above: 0, most: 1 }, false],
  maxTokens: [{ least: 1, most: 100_000 }, true],
  seed: [{ least: 0, most: 2 ** 31 - 1 }, true],
} as const;

type Numeric = keyof typeof LIMITS;

export function mistakesIn(texts: SamplingTexts): Partial<Record<Numeric, string>> {
  return Object.fromEntries(
    (Object.keys(LIMITS) as Numeric[]).flatMap((name) => {
      const mistake = numberMistake(texts[name], LIMITS[name][0], LIMITS[name][1]);
      return mistake === null ? [] : [[name, mistake]];
    }),
  );
}

/** What is left empty gets its starting value; no seed means another answer every time. */
export function sampledBy(texts: SamplingTexts, model: string): Sampled {
  const value = (name: Numeric) => parseNumber(texts[name]) ?? parseNumber(STARTING[name]);
  const stop = texts.stop.split("\n").filter((line) => line !== "");
  const seed = value("seed");
  return {
    model,
    temperature: value("temperature") ?? 0,
    top_p: value("topP") ?? 1,
    max_tokens: value("maxTokens") ?? 1,
    ...(stop.length > 0 ? { stop: stop.slice(0, 4) } : {}),
    ...(seed === null ? {} : { seed }),
  };
}
