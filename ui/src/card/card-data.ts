/**
 * What the page is given: once inside the file, and again with every live update. It is the snapshot that
 * docs/traincard.md describes, with numbers shortened and, where there is one, an address for a checkpoint.
 */
import type { ChartMark, CurvePoints } from "@/charts/plot-data";
import { counted, countText, numberOf } from "@/text/numbers";

/** `y` holds means where a line is thinned, `low` and `high` the extremes; otherwise they are empty. `last`: as it was reported. A snapshot of an older version has only `x` and `y`. */
export type Line = { x: number[]; y: (number | null)[]; low?: (number | null)[]; high?: (number | null)[]; last?: number | string | null };
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
type Finding = { kind: string; severity: string; sentence: string; since: number | null };
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
  applied: number | null;
  want: string;
  set: Record<string, unknown>;
  refused: Record<string, string>;
  resumes: boolean;
  is_held: boolean;
  problem: string | null;
};

type RankValue = { rank: number; value: number | null };

export type CardData = {
  v: 1;
  made_at: number;
  name: string;
  status: RunStatus;
  findings: Finding[];
  discontinuities: Discontinuity[];
  metrics: Metric[];
  metrics_left_out: number;
  system: { nodes: Node[]; series: SystemSeries[] };
  ranks: Rank[];
  rank_variance: { name: string; mean: number | null; lowest: RankValue; highest: RankValue; spread: number | null }[];
  checkpoints: { best: string | null; items: Checkpoint[] };
  logs: { lines: LogLine[]; total: number; errors: number };
  failure: Failure | null;
  /** On a live page: what the run is told, and what of it is in force. */
  control?: Control;
  /** Sentences of whoever shows the card, such as where the rest of the run is. */
  notes?: string[];
};

/** One line of a chart: all attempts of a metric, or one GPU. */
export type CardSeries = CurvePoints & { key: string };

const numbers = (values: (number | null)[]) => values.map((value) => value ?? Number.NaN);

/** The curves of a run by key; attempts of one metric and rank follow each other in one curve. */
export function curvesOf(data: CardData): Map<string, CardSeries> {
  const curves = new Map<string, CardSeries>();
  const add = (key: string, name: string, axis: "step" | "time", line: Line, attempt: number) => {
    let curve = curves.get(key);
    if (!curve) curves.set(key, (curve = { key, name, rank: 0, axis, x: [], value: [], low: [], high: [], attempt: [], last: null }));
    const values = numbers(line.y);
    curve.x = curve.x.concat(line.x);
    curve.value = curve.value.concat(values);
    curve.low = curve.low.concat(line.low?.length ? numbers(line.low) : values);
    curve.high = curve.high.concat(line.high?.length ? numbers(line.high) : values);
    curve.attempt = curve.attempt.concat(line.x.map(() => attempt));
    const newest = line.x.at(-1);
    if (newest !== undefined) curve.last = { x: newest, attempt, value: numberOf(line.last === undefined ? line.y.at(-1) : line.last) };
  };
  for (const metric of data.metrics) {
    for (const line of metric.lines.toSorted((a, b) => a.attempt - b.attempt)) add(metricKey(metric.name, line.rank), metric.name, "step", line, line.attempt);
  }
  for (const series of data.system.series) {
    for (const line of series.lines) add(systemKey(series.name, line), series.name, "time", line, 1);
    if (series.aggregate) add(aggregateKey(series.name), series.name, "time", series.aggregate, 1);
  }
  return curves;
}

export const metricKey = (name: string, rank: number) => `metric ${rank} ${name}`;
export const systemKey = (name: string, line: { host: string | null; gpu: number | null }) => `system ${line.host ?? ""} ${line.gpu ?? ""} ${name}`;
export const aggregateKey = (name: string) => `all ${name}`;

/** The message without the exception's name, which stands before it in most logs. */
export function messageOf({ type, message }: Pick<Failure, "type" | "message">): string | null {
  const name = type?.split(".").at(-1);
  return message && name && message.startsWith(`${name}: `) ? message.slice(name.length + 2) : message;
}

/** Where an attempt took over from the one before. */
export function marksOf(data: CardData): ChartMark[] {
  return data.discontinuities.map(({ attempt, step, repeated_steps, reason }) => {
    const why = reason ? `: ${reason.length > 60 ? `${reason.slice(0, 60)}…` : reason}` : "";
    const repeated = repeated_steps ? `, ${counted(repeated_steps, "step")} repeated` : "";
    return { step: step ?? 0, label: `attempt ${countText(attempt)}${repeated}${why}` };
  });
}
