/** Reads JSON whose shape nobody promised. What is not as expected is null, or empty. */
import { numberOf } from "@/text/numbers";

export type Json = Record<string, unknown>;

export const record = (value: unknown): Json => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {});
export const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
/** What a run measured: a number, or one of the texts that JSON has for NaN and the infinities. */
export const measured = (value: unknown): number | null => (typeof value === "number" || value === "NaN" || value === "Infinity" || value === "-Infinity" ? numberOf(value) : null);
export const text = (value: unknown): string | null => (typeof value === "string" ? value : null);
export const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);
