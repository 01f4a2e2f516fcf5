/** What pages read of a job's summary, and readers for the free JSON of configs and plans: a value of the wrong type reads as null or empty. */
import { numberOf } from "@/text/numbers";
import type { Cost, Job, JobUpdate, RunSummary } from "./types";

export type Json = Record<string, unknown>;

export const record = (value: unknown): Json => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {});
export const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
/** What a run measured: a number, or one of the texts that JSON has for NaN and the infinities. */
export const measured = (value: unknown): number | null => (typeof value === "number" || value === "NaN" || value === "Infinity" || value === "-Infinity" ? numberOf(value) : null);
export const text = (value: unknown): string | null => (typeof value === "string" ? value : null);
export const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);

/** The summary with its measured values as numbers. */
export type Summary = Omit<RunSummary, "values" | "system"> & { values: Record<string, number>; system: Record<string, number> };

export function readSummary({ summary }: Pick<Job, "summary">): Summary {
  const values = Object.entries(summary.values).map(([name, last]) => [name, numberOf(last.value)] as const);
  const system = Object.entries(summary.system).map(([name, value]) => [name, numberOf(value)] as const);
  return { ...summary, values: Object.fromEntries(values), system: Object.fromEntries(system) };
}

/** The share of the work that is done, from 0 to 1; null while nobody knows how much there is. */
export function progressOf(job: Pick<Job, "summary" | "status">): number | null {
  if (job.status === "completed") return 1;
  const { step, total_steps: total } = job.summary;
  if (step === null || !total) return null;
  return Math.min(1, step / total);
}

/** What the job costs at the provider that it runs at; null where nothing is rented. */
export function costOf({ summary: { cost } }: Pick<Job, "summary">): (Cost & { provider: string }) | null {
  return cost?.provider ? { ...cost, provider: cost.provider } : null;
}

/** The job after an event of its stream. */
export function withUpdate(job: Job, position: number, { job: change }: JobUpdate): Job {
  const { summary, ...fields } = change ?? {};
  return { ...job, ...fields, summary: withChanges(job.summary, summary ?? {}), position };
}

function withChanges(before: RunSummary, { values, system, ...fields }: NonNullable<NonNullable<JobUpdate["job"]>["summary"]>): RunSummary {
  return { ...before, ...fields, values: withKeys(before.values, values), system: withKeys(before.system, system) };
}

/** Null says that a key is gone. */
function withKeys<Value>(before: Record<string, Value>, changes: Record<string, Value | null> | undefined): Record<string, Value> {
  if (!changes) return before;
  return Object.fromEntries(Object.entries({ ...before, ...changes }).flatMap(([name, value]) => (value === null ? [] : [[name, value as Value]])));
}
