/**
 * What the page is given: once inside the file, and again with every live update. It is the snapshot that
 * docs/traincard.md describes, with numbers shortened and, where there is one, an address for a checkpoint.
 */
import type { Clock } from "@/charts/along";
import { bestMark, type ChartMark, curveKey, type CurvePoints } from "@/charts/plot-data";
import { aggregateName } from "@/charts/run-charts";
import type { WhatRan } from "@/text/what-ran";
import { counted, countText, numberOf } from "@/text/numbers";

/**
 * `y` holds means where a line is thinned, `low` and `high` the extremes and `n` how many values; otherwise they are
 * empty. `gaps`: where values were NaN or infinite. `last`: as it was reported. A snapshot of an older version has
 * only `x` and `y`.
 */
export type Line = { x: number[]; y: (number | null)[]; low?: (number | null)[]; high?: (number | null)[]; n?: number[]; gaps?: number[]; last?: number | string | null };
export type MetricLine = Line & { attempt: number; rank: number };
/** What a run measured: NaN and the infinities are text in JSON. */
export type Value = number | string | null;
type Point = { step: number | null; value: Value };
export type Metric = { name: string; title: string; group: string; last: Point | null; best: Point | null; lines: MetricLine[] };
export type SystemSeries = {
  name: string;
  title: string;
  unit: string | null;
  lines: (Line & { host: string | null; gpu: number | null })[];
  aggregate: (Line & { how: string }) | null;
};
export type Node = { host: string | null; ranks: number[]; gpus: { index: number; name: string | null }[]; last: Record<string, Value> };
/** A snapshot of an older version has neither a title nor a next step. */
type Finding = { kind: string; severity: string; sentence: string; since: number | null; title?: string; next_step?: string };
export type Attempt = { attempt: number; status: string | null; ended_at: number | null; error?: { type: string | null; message: string | null; traceback: string | null; cause: string | null } | null };
type Discontinuity = { attempt: number; step: number | null; previous_step: number | null; repeated_steps: number | null; reason: string | null; t: number | null };
type Rank = {
  rank: number;
  host: string | null;
  state: string;
  since: number | null;
  last_seen: number | null;
  step: number | null;
  step_seconds: number | null;
};
export type Checkpoint = {
  step: number | null;
  path: string;
  link?: string;
  size: number | null;
  t: number | null;
  attempt: number | null;
  metrics: Record<string, Value> | null;
  /** What the trainer said of it; older runs and most scripts say nothing. */
  metadata?: Record<string, unknown> | null;
  best: boolean;
  removed: boolean;
};
export type LogLine = { t: number | null; rank: number; attempt: number; level: string; line: string };
export type Failure = {
  status: string;
  message: string | null;
  type: string | null;
  traceback: string | null;
  cause: string | null;
  cause_title?: string | null;
  advice: string | null;
  /** Ranks that went without a word, the first to go first. */
  lost_ranks?: number[];
  rank: number | null;
  attempt: number | null;
  t: number | null;
  step: number | null;
  last_metrics: Record<string, Point>;
  last_system: Record<string, Value>;
};
export type RunStatus = {
  status: string;
  phase: string | null;
  step: number | null;
  total_steps: number | null;
  epoch: number | null;
  epochs: number | null;
  started_at: number | null;
  updated_at: number | null;
  elapsed_seconds: number | null;
  eta_seconds: number | null;
  global_batch_size: number | null;
  world_size: number | null;
  attempt: number | null;
  restart_count: number;
  dropped: Record<string, number>;
  facts: Record<string, unknown>;
};

type Control = {
  version: number;
  /** Whether the loop looks for commands; a server of an older version does not say. */
  listens?: boolean;
  applied: number | null;
  want: string;
  set: Record<string, unknown>;
  refused: Record<string, string>;
  resumes: boolean;
  is_held: boolean;
  problem: string | null;
};

type EvaluatedStep = { step: number; loss: number };
/** A snapshot of an older version has no `not_finite_since`. */
export type Improvement = { verdict: "yes" | "no" | "unclear"; text: string; first: EvaluatedStep; compared: EvaluatedStep; not_finite_since?: number | null; interval: string | null };

export type PromptSamples = { prompt: string; answers: { step: number; text: string }[] };

type RankValue = { rank: number; value: number | null };

export type CardData = {
  v: 1;
  made_at: number;
  name: string;
  status: RunStatus;
  findings: Finding[];
  /** A snapshot of an older version has none. */
  improvement?: Improvement | null;
  /** A snapshot of an older version has no errors here. */
  attempts?: Attempt[];
  discontinuities: Discontinuity[];
  /** When steps happened. A snapshot of an older version has none. */
  clock?: { attempt: number; x: number[]; t: number[] }[];
  metrics: Metric[];
  metrics_left_out: number;
  system: { nodes: Node[]; series: SystemSeries[] };
  ranks: Rank[];
  rank_variance: { name: string; mean: number | null; lowest: RankValue; highest: RankValue; spread: number | null }[];
  checkpoints: { best: string | null; items: Checkpoint[] };
  /** `output`: the last lines that the process printed, where whoever started it keeps them. */
  logs: { lines: LogLine[]; total: number; errors: number; output?: string[] };
  /** A snapshot of an older version has none. */
  samples?: PromptSamples[];
  failure: Failure | null;
  /** A snapshot of an older version has none. */
  what_ran?: WhatRan;
  /** On a live page: what the run is told, and what of it is in force. */
  control?: Control;
  /** Sentences of whoever shows the card, such as where the rest of the run is. */
  notes?: string[];
};

const noPoints = (name: string, rank: number, axis: "step" | "time"): CurvePoints & { count: number[]; gaps: { x: number[]; attempt: number[] } } => ({
  name,
  rank,
  axis,
  x: [],
  value: [],
  low: [],
  high: [],
  count: [],
  attempt: [],
  gaps: { x: [], attempt: [] },
  last: null,
});

/** The curves of a run by key, as a server would give them; attempts of one metric and rank follow each other in one curve. */
export function curvesOf(data: CardData): Map<string, CurvePoints> {
  const curves = new Map<string, ReturnType<typeof noPoints>>();
  const curveOf = (name: string, rank: number, axis: "step" | "time") => {
    const key = curveKey({ name, rank });
    let curve = curves.get(key);
    if (!curve) curves.set(key, (curve = noPoints(name, rank, axis)));
    return curve;
  };
  for (const metric of data.metrics) {
    for (const line of metric.lines.toSorted((a, b) => a.attempt - b.attempt)) append(curveOf(metric.name, line.rank, "step"), line, line.attempt);
  }
  const rankOf = new Map(data.system.nodes.map(({ host, ranks }) => [host, ranks[0] ?? 0]));
  for (const series of data.system.series) {
    for (const line of series.lines) append(curveOf(systemName(series.name, line.gpu), rankOf.get(line.host) ?? 0, "time"), line, 1);
    if (series.aggregate) append(curveOf(aggregateName(series.name, series.aggregate.how), 0, "time"), series.aggregate, 1);
  }
  return curves;
}

/** A line at the end of a curve. Where telemetry has no value, nobody looked: what follows is another piece of the line. */
function append(curve: ReturnType<typeof noPoints>, line: Line, attempt: number) {
  let piece = attempt;
  line.y.forEach((value, index) => {
    const x = line.x[index] ?? 0;
    if (value === null) {
      if (curve.axis === "time") piece += 1;
      else if (line.gaps === undefined) put(curve.gaps, x, attempt);
      return;
    }
    curve.x.push(x);
    curve.value.push(value);
    curve.low.push((line.low?.length ? line.low[index] : value) ?? value);
    curve.high.push((line.high?.length ? line.high[index] : value) ?? value);
    curve.count.push(line.n?.[index] ?? 1);
    curve.attempt.push(piece);
  });
  for (const x of line.gaps ?? []) put(curve.gaps, x, attempt);
  const newest = line.x.at(-1);
  if (newest !== undefined) curve.last = { x: newest, attempt, value: numberOf(line.last === undefined ? line.y.at(-1) : line.last) };
}

function put(gaps: { x: number[]; attempt: number[] }, x: number, attempt: number) {
  gaps.x.push(x);
  gaps.attempt.push(attempt);
}

const systemName = (name: string, gpu: number | null) => (gpu === null ? `system/${name}` : `system/gpu/${gpu}/${name.replace(/^gpu\//, "")}`);

/** The machine of each rank that speaks for one. */
export const hostsOf = ({ system }: CardData): Record<string, string> => Object.fromEntries(system.nodes.map(({ host, ranks }) => [ranks[0] ?? 0, host ?? ""]));

export const clockOf = ({ clock }: CardData): Clock[] => (clock ?? []).map(({ attempt, x, t }) => ({ attempt, x, time: t }));

/** The message without the exception's name, which stands before it in most logs. */
export function messageOf({ type, message }: Pick<Failure, "type" | "message">): string | null {
  const name = type?.split(".").at(-1);
  return message && name && message.startsWith(`${name}: `) ? message.slice(name.length + 2) : message;
}

/** Where an attempt took over from the one before, and where the best checkpoint was saved. */
export function marksOf(data: CardData): ChartMark[] {
  const resumed = data.discontinuities.map(({ attempt, step, repeated_steps, reason }): ChartMark => {
    const why = reason ? `: ${reason.length > 60 ? `${reason.slice(0, 60)}…` : reason}` : "";
    const repeated = repeated_steps ? `, ${counted(repeated_steps, "step")} repeated` : "";
    return { step: step ?? 0, label: `attempt ${countText(attempt)}${repeated}${why}`, kind: "resume" };
  });
  const best = data.checkpoints?.items.find((one) => one.best)?.step ?? null;
  return best === null ? resumed : [...resumed, bestMark(best)];
}
