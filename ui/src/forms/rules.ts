/**
 * Rules that several forms share: numbers as people type them ("1e-4", "0.05", "1,000"; empty is null), texts, addresses,
 * passwords and Hugging Face ids. Limits are those of the server, which checks everything again.
 */
import { DatasetFromHub, FactorCode, NewModel, SignUp } from "@/api/request-fields";
import type { FieldSchema } from "./schema-fields";
import { z } from "./zod";

type NumberSchema = Pick<FieldSchema, "type" | "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum">;

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** Null when it is no number. */
export function parseNumber(text: string): number | null {
  const plain = text.trim().replaceAll(/[,_\s](?=\d{3}\b)/g, "");
  if (!NUMBER.test(plain)) return null;
  const value = Number(plain);
  return Number.isFinite(value) ? value : null;
}

/** The sentence for a number that does not do, or null for one that does. */
export function numberMistake(text: string, { type, minimum, exclusiveMinimum: above, maximum, exclusiveMaximum: below }: NumberSchema): string | null {
  if (text.trim() === "") return null;
  const whole = type === "integer";
  const value = parseNumber(text);
  if (value === null) return whole ? "Enter a whole number." : "Enter a number, such as 0.001 or 1e-3.";
  if (whole && !Number.isInteger(value)) return "Enter a whole number.";
  if (above !== undefined && value <= above) return `The value must be greater than ${above}.`;
  if (minimum !== undefined && value < minimum) return `The value must be at least ${minimum}.`;
  // Larger whole numbers are not exact here.
  const most = whole ? Math.min(maximum ?? Infinity, Number.MAX_SAFE_INTEGER) : maximum;
  if (most !== undefined && value > most) return `The value must be at most ${most.toLocaleString("en-GB")}.`;
  if (below !== undefined && value >= below) return `The value must be less than ${below.toLocaleString("en-GB")}.`;
  return null;
}

/** A number within the limits of the server's field; empty is null. */
export const numberRule = (schema: NumberSchema) =>
  z.string().transform((text, context) => {
    const mistake = numberMistake(text, schema);
    if (mistake === null) return text.trim() === "" ? null : parseNumber(text);
    context.addIssue({ code: "custom", message: mistake });
    return z.NEVER;
  });

type TextSchema = { readonly maxLength: number };

const atMost = ({ maxLength }: TextSchema) => `Enter at most ${maxLength.toLocaleString("en-GB")} characters.`;

/** Text without blanks around it, no longer than the server takes. */
export const textRule = (schema: TextSchema) => z.string().trim().max(schema.maxLength, atMost(schema));

/** The same, where empty is null. */
export const textOrNull = (schema: TextSchema) => textRule(schema).transform((text) => (text === "" ? null : text));

const { minLength: SHORTEST, maxLength: LONGEST } = SignUp.password;

export const PASSWORD_HELP = `Use ${SHORTEST} to ${LONGEST} characters. Several random words make a good password.`;

export const personName = textRule(SignUp.name).min(1, "Enter your name.");

export const emailAddress = textRule(SignUp.email)
  .min(1, "Enter your email address.")
  .regex(/^[^\s@]+@[^\s@]+$/, "Enter a valid email address.");

export const newPassword = z
  .string()
  .min(SHORTEST, `A password needs at least ${SHORTEST} characters.`)
  .max(LONGEST, `A password can have at most ${LONGEST} characters.`);

/** A password that exists already: its rules may be older than today's. */
export const existingPassword = z.string().min(1, "Enter your password.");

/** A code of an authenticator app, or a recovery code. */
export const codeRule = textRule(FactorCode.code).min(1, "Enter the code.");

/** People copy the address of the page as often as the id. */
const withoutAddress = (text: string) =>
  text
    .trim()
    .replace(/^https?:\/\/[^/]+\//, "")
    .replace(/^datasets\//, "")
    .replace(/\/(tree|blob|resolve)\/.*$/, "")
    .replace(/\/$/, "");

const hubId = ({ pattern }: { readonly pattern: string }, empty: string, wrong: string) =>
  z
    .string()
    .transform(withoutAddress)
    .pipe(z.string().min(1, empty).regex(new RegExp(pattern), wrong));

export const hubModelId = hubId(NewModel.repository, "Enter the model ID.", "Enter a model ID such as Qwen/Qwen2.5-0.5B-Instruct.");

/** The oldest datasets have no owner in their id. */
export const hubDatasetId = hubId(DatasetFromHub.repository, "Enter the dataset ID.", "Enter a dataset ID such as tatsu-lab/alpaca.");
