/**
 * Rules that several forms share: numbers as people type them ("1e-4", "0.05", "1,000"; empty is null), names, addresses,
 * passwords and Hugging Face ids. The server checks everything again.
 */
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

export const PASSWORD_HELP = "10 to 128 characters. A few words in a row make a good one.";

export const personName = z
  .string()
  .trim()
  .min(1, "Enter your name.")
  .max(120, "A name can have at most 120 characters.");

export const emailAddress = z
  .string()
  .trim()
  .min(1, "Enter your email address.")
  .max(254, "An email address can have at most 254 characters.")
  .regex(/^[^\s@]+@[^\s@]+$/, "This does not look like an email address.");

export const newPassword = z
  .string()
  .min(10, "A password needs at least 10 characters.")
  .max(128, "A password can have at most 128 characters.");

/** A password that exists already: its rules may be older than today's. */
export const existingPassword = z.string().min(1, "Enter your password.");

const NAME = String.raw`[\w.-]+`;

/** People copy the address of the page as often as the id. */
const withoutAddress = (text: string) =>
  text
    .trim()
    .replace(/^https?:\/\/[^/]+\//, "")
    .replace(/^datasets\//, "")
    .replace(/\/(tree|blob|resolve)\/.*$/, "")
    .replace(/\/$/, "");

const hubId = (empty: string, pattern: RegExp, wrong: string) =>
  z
    .string()
    .transform(withoutAddress)
    .pipe(z.string().min(1, empty).max(200, "An id can have at most 200 characters.").regex(pattern, wrong));

export const hubModelId = hubId("Enter the id of the model.", new RegExp(`^${NAME}/${NAME}$`), "An id looks like Qwen/Qwen2.5-0.5B-Instruct.");

/** The oldest datasets have no owner in their id. */
export const hubDatasetId = hubId("Enter the id of the dataset.", new RegExp(`^(${NAME}/)?${NAME}$`), "An id looks like tatsu-lab/alpaca.");

export const shortText = z
  .string()
  .trim()
  .max(200, "At most 200 characters.")
  .transform((text) => (text === "" ? null : text));
