/** Tasks on a trained model (evaluation, export, learning-rate finder): how they are started, and typed readers for their results. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient } from "./client";
import { type Json, number, record, text, texts } from "./job-summary";
import { isResting, jobQuery } from "./jobs";
import type { Job, JobKind, NewEvaluation, NewExport } from "./types";

const MOVING_EVERY = 1_000;
const RESTING_EVERY = 15_000;
const TASK_LIMIT = 20;

/** The tasks about one run, newest first. */
export const tasksQuery = (parentId: string, kind: JobKind) =>
  queryOptions({
    queryKey: ["jobs", "tasks", parentId, kind],
    queryFn: ({ signal }) => answerOf(api.GET("/api/jobs", { params: { query: { parentId, kind: [kind], limit: TASK_LIMIT } }, signal })),
    refetchInterval: (query) => (query.state.data?.items.some((job) => !isResting(job.status)) ? MOVING_EVERY : RESTING_EVERY),
  });

function keep(task: Job): Job {
  queryClient.setQueryData(jobQuery(task.id).queryKey, task);
  void forgetTasks();
  return task;
}

const at = (id: string) => ({ path: { job_id: id } });

export const startEvaluation = async (jobId: string, body: NewEvaluation) =>
  keep(await answerOf(api.POST("/api/jobs/{job_id}/evaluations", { params: at(jobId), body })));

export const startExport = async (jobId: string, body: NewExport) => keep(await answerOf(api.POST("/api/jobs/{job_id}/exports", { params: at(jobId), body })));

export const forgetTasks = () => queryClient.invalidateQueries({ queryKey: ["jobs", "tasks"] });

type WantedCheckpoints = { projectId?: string; search?: string; best?: boolean; limit: number; offset: number };

/** Checkpoints of all runs, newest first. */
export const allCheckpointsQuery = (wanted: WantedCheckpoints) =>
  queryOptions({
    queryKey: ["checkpoints", wanted],
    queryFn: ({ signal }) => answerOf(api.GET("/api/checkpoints", { params: { query: wanted }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: RESTING_EVERY,
  });

const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

export type Measured = { loss: number | null; perplexity: number | null; tokens: number | null };
export type Answered = { prompt: string; base: string | null; tuned: string | null };
export type Score = { name: string; base: number | null; tuned: number | null };
export type Evaluation = { base: Measured | null; tuned: Measured | null; prompts: Answered[]; scores: Score[]; notes: string[] };

function measured(value: unknown): Measured | null {
  if (typeof value !== "object" || value === null) return null;
  const given = record(value);
  return { loss: number(given.loss), perplexity: number(given.perplexity), tokens: number(given.tokens) };
}

/** Numbers anywhere inside, by the path that leads to them. */
function numbersWithin(value: Json, path: string[] = []): [string, number][] {
  return Object.entries(value).flatMap(([name, item]): [string, number][] => {
    const leaf = number(item);
    if (leaf !== null) return [[[...path, name].join(" "), leaf]];
    return typeof item === "object" && item !== null ? numbersWithin(record(item), [...path, name]) : [];
  });
}

function scoresOf(value: unknown): Score[] {
  const given = record(value);
  const base = new Map(numbersWithin(record(given.base)));
  const tuned = new Map(numbersWithin(record(given.tuned)));
  return [...new Set([...tuned.keys(), ...base.keys()])].map((name) => ({ name, base: base.get(name) ?? null, tuned: tuned.get(name) ?? null }));
}

export function readEvaluation(result: Json | null): Evaluation | null {
  if (result === null) return null;
  const perplexity = record(result.perplexity);
  return {
    base: measured(perplexity.base),
    tuned: measured(perplexity.tuned),
    prompts: list(result.prompts).map((item) => {
      const given = record(item);
      return { prompt: text(given.prompt) ?? "", base: text(given.base), tuned: text(given.tuned) };
    }),
    scores: scoresOf(result.lm_eval),
    notes: texts(result.notes),
  };
}

export type Replayed = { prompt: string; before: string; after: string; same: boolean };
export type Exported = {
  form: string;
  dtype: string | null;
  bytes: number | null;
  replay: Replayed[];
  same: number;
  of: number;
  largestDifference: number | null;
  hub: { repository: string; url: string | null } | null;
  notes: string[];
};

export function readExport(result: Json | null): Exported | null {
  if (result === null) return null;
  const replay = list(result.replay).map((item) => {
    const given = record(item);
    return { prompt: text(given.prompt) ?? "", before: text(given.before) ?? "", after: text(given.after) ?? "", same: given.same === true };
  });
  const hub = record(result.hub);
  const repository = text(hub.repository);
  return {
    form: text(result.form) ?? "merged",
    dtype: text(result.dtype),
    bytes: number(result.bytes),
    replay,
    same: number(result.same) ?? replay.filter((one) => one.same).length,
    of: number(result.of) ?? replay.length,
    largestDifference: number(result.largest_logit_difference),
    hub: repository === null ? null : { repository, url: text(hub.url) },
    notes: texts(result.notes),
  };
}

export type FinderPoint = { rate: number; loss: number; smoothed: number };
export type FinderResult = { points: FinderPoint[]; suggested: number | null; reason: string | null; divergedAt: number | null };

export function readFinder(result: Json | null): FinderResult | null {
  if (result === null) return null;
  const points = list(result.points).flatMap((item): FinderPoint[] => {
    const given = record(item);
    const [rate, loss] = [number(given.learning_rate), number(given.loss)];
    return rate === null || loss === null || rate <= 0 ? [] : [{ rate, loss, smoothed: number(given.smoothed) ?? loss }];
  });
  return { points, suggested: number(result.suggested), reason: text(result.reason), divergedAt: number(result.diverged_at) };
}
