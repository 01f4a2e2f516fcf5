/** What a run says about itself. The shape is the server's; a run's own facts may hold anything. */
import { isNumber, numberOf } from "@/text/numbers";
import type { Job, JobStatus, JobUpdate, RunSummary as Summary } from "./types";

/** A fact that should be a number, or a text. */
export const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
export const text = (value: unknown): string | null => (typeof value === "string" ? value : null);

/** What a run measured: a number, or one of the texts that JSON has for NaN and the infinities. */
export const measured = (value: unknown): number | null => (isNumber(value) ? numberOf(value) : null);

/** The newest value of a curve. */
export const lastValue = ({ values }: Pick<Summary, "values">, name: string) => measured(values[name]?.value) ?? undefined;

/** The newest value of a machine's telemetry. */
export const lastTelemetry = ({ system }: Pick<Summary, "system">, name: string) => measured(system[name]);

type Progress = { status: JobStatus; step: number | null; total_steps: number | null };

/** The share of the work that is done, from 0 to 1; null while nobody knows how much there is. */
export function progressOf({ status, step, total_steps: total }: Progress): number | null {
  if (status === "completed") return 1;
  return step === null || !total ? null : Math.min(1, step / total);
}

/** The job after an event of its stream. */
export function withUpdate(job: Job, position: number, { job: change }: JobUpdate): Job {
  const { summary, ...fields } = change ?? {};
  return { ...job, ...fields, summary: withChanges(job.summary, summary ?? {}), position };
}

function withChanges(before: Summary, { values, system, ...fields }: NonNullable<NonNullable<JobUpdate["job"]>["summary"]>): Summary {
  return { ...before, ...fields, values: withKeys(before.values, values), system: withKeys(before.system, system) };
}

/** Null says that a key is gone. */
function withKeys<Value>(before: Record<string, Value>, changes: Record<string, Value | null> | undefined): Record<string, Value> {
  if (!changes) return before;
  return Object.fromEntries(Object.entries({ ...before, ...changes }).flatMap(([name, value]) => (value === null ? [] : [[name, value as Value]])));
}
