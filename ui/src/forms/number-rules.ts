/** Numbers as people type them: "1e-4", "0.05", "1,000". Empty is null, where the server fills in. */
import { z } from "./zod";

type Limits = { least?: number; above?: number; most?: number };

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** Null when it is no number. */
export function parseNumber(text: string): number | null {
  const plain = text.trim().replaceAll(/[,_\s](?=\d{3}\b)/g, "");
  if (!NUMBER.test(plain)) return null;
  const value = Number(plain);
  return Number.isFinite(value) ? value : null;
}

/** The sentence for a number that does not do, or null for one that does. */
export function numberMistake(text: string, { least, above, most }: Limits, whole: boolean): string | null {
  if (text.trim() === "") return null;
  const value = parseNumber(text);
  if (value === null) return whole ? "Enter a whole number." : "Enter a number, such as 0.001 or 1e-3.";
  if (whole && !Number.isInteger(value)) return "Enter a whole number.";
  if (above !== undefined && value <= above) return `It must be more than ${above}.`;
  if (least !== undefined && value < least) return `It must be at least ${least}.`;
  if (most !== undefined && value > most) return `It can be at most ${most.toLocaleString("en-GB")}.`;
  return null;
}

const rule = (limits: Limits, whole: boolean) =>
  z.string().transform((text, context) => {
    const mistake = numberMistake(text, limits, whole);
    if (mistake === null) return text.trim() === "" ? null : parseNumber(text);
    context.addIssue({ code: "custom", message: mistake });
    return z.NEVER;
  });

export const decimal = (limits: Limits) => rule(limits, false);
export const wholeNumber = (limits: Limits) => rule(limits, true);
