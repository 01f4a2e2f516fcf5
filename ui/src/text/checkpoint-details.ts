/** What a run said of a checkpoint, in words. A script may say anything, and older runs say nothing. */
import { durationText, parametersText } from "./numbers";

export type Details = { training_seconds?: unknown; parameters?: unknown; trained_parameters?: unknown; optimizations?: unknown };

const finite = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);

export function trainingTime({ training_seconds: seconds }: Details): string | null {
  const known = finite(seconds);
  return known === null ? null : durationText(known);
}

/** "40.4 M of 7.6 B parameters", or how many where all are trained. */
export function trainedText({ parameters, trained_parameters: trained }: Details): string | null {
  const [some, all] = [finite(trained), finite(parameters)];
  if (some === null || all === null) return null;
  return some === all ? `all ${parametersText(all)}` : `${parametersText(some)} of ${parametersText(all)}`;
}

export const optimizationsIn = ({ optimizations }: Details): string[] =>
  Array.isArray(optimizations) ? optimizations.filter((each): each is string => typeof each === "string") : [];
