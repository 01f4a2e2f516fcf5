/** A typed reading of what a job costs; only jobs on rented machines have one. */
import { number, record, text } from "./free-json";
import type { Job } from "./types";

export type Cost = {
  soFar: number;
  hourly: number;
  estimated: { low: number; likely: number; high: number } | null;
  limit: number | null;
  provider: string;
  gpu: string | null;
  gpus: number;
  region: string | null;
  kind: string | null;
  billedSeconds: number;
  running: boolean;
  /** What the service says of the machine. */
  detail: string | null;
  page: string | null;
};

export function readCost(job: Pick<Job, "summary">): Cost | null {
  const cost = record(job.summary.cost);
  const soFar = number(cost.so_far);
  const provider = text(cost.provider);
  if (soFar === null || provider === null) return null;
  const estimated = record(cost.estimated);
  const [low, likely, high] = [number(estimated.low), number(estimated.likely), number(estimated.high)];
  return {
    soFar,
    hourly: number(cost.hourly) ?? 0,
    estimated: low === null || likely === null || high === null ? null : { low, likely, high },
    limit: number(cost.limit),
    provider,
    gpu: text(cost.gpu),
    gpus: number(cost.gpus) ?? 1,
    region: text(cost.region),
    kind: text(cost.kind),
    billedSeconds: number(cost.billed_seconds) ?? 0,
    running: cost.running === true,
    detail: text(cost.detail),
    page: text(cost.page),
  };
}
