/**
 * What a chart draws, without drawing it: attempts, smoothing, stacked lines and marks.
 * Curves are kept as they were reported: when an attempt repeats steps, the values of both attempts are there.
 */
import type { Curve, Mark } from "@/api/types";
import { countText, settingText } from "@/text/numbers";

/** The newest value as it was reported, also where the points are means of several. NaN where it was no number. */
type LastPoint = Omit<NonNullable<Curve["last"]>, "value"> & { value: number };

export type CurvePoints = Omit<Curve, "last"> & { last: LastPoint | null };

/** Whether points are means of several values; `low` and `high` are then their extremes. */
export const isThinned = ({ low, high }: Pick<CurvePoints, "low" | "high">) => low.some((value, index) => value < (high[index] ?? value));

type Segment = { attempt: number; x: number[]; value: number[]; low: number[]; high: number[] };

/** One piece for every attempt, each in the order of x. */
export function splitByAttempt(curve: CurvePoints): Segment[] {
  const pieces = new Map<number, Segment>();
  curve.x.forEach((x, index) => {
    const attempt = curve.attempt[index] ?? 1;
    let piece = pieces.get(attempt);
    if (!piece) pieces.set(attempt, (piece = { attempt, x: [], value: [], low: [], high: [] }));
    const last = piece.x.at(-1);
    // A point that is out of order, or there already, would break the drawing of the line.
    if (last !== undefined && x <= last) return;
    piece.x.push(x);
    piece.value.push(curve.value[index] ?? Number.NaN);
    piece.low.push(curve.low[index] ?? Number.NaN);
    piece.high.push(curve.high[index] ?? Number.NaN);
  });
  return [...pieces.values()].toSorted((a, b) => a.attempt - b.attempt);
}

/** The curve with a part of it in finer detail; what arrived after the detail was fetched stays. */
export function withDetail(curve: CurvePoints, detail: CurvePoints, from: number): CurvePoints {
  const reaches = new Map<number, number>();
  detail.x.forEach((x, index) => reaches.set(detail.attempt[index] ?? 1, x));
  const merged: CurvePoints = { ...curve, x: [], value: [], low: [], high: [], attempt: [] };
  const take = (source: CurvePoints, wanted: (x: number, attempt: number) => boolean) =>
    source.x.forEach((x, index) => {
      const attempt = source.attempt[index] ?? 1;
      if (!wanted(x, attempt)) return;
      merged.x.push(x);
      merged.value.push(source.value[index] ?? Number.NaN);
      merged.low.push(source.low[index] ?? Number.NaN);
      merged.high.push(source.high[index] ?? Number.NaN);
      merged.attempt.push(attempt);
    });
  take(curve, (x) => x < from);
  take(detail, (x) => x >= from);
  take(curve, (x, attempt) => x >= from && x > (reaches.get(attempt) ?? from - 1));
  return merged;
}

/**
 * An exponential moving average with its start corrected, so that the first points are not pulled towards zero.
 * A weight of 0 changes nothing; 0.99 follows only the trend.
 */
export function smooth(values: readonly number[], weight: number): number[] {
  if (weight <= 0) return [...values];
  let average = 0;
  let share = 1;
  return values.map((value) => {
    average = average * weight + value * (1 - weight);
    share *= weight;
    return average / (1 - share);
  });
}

export type LineSpec = {
  /** Series to draw. */
  name: string;
  label: string;
  colour: string;
  /** Rare points, such as evaluations: each is shown, and none is smoothed away. */
  dots?: boolean;
  /** The area below is tinted. */
  fill?: boolean;
  /** The line it stands on, by name: drawn on top of it, with the area between them tinted. */
  below?: string;
};

/** A line under the cursor. `raw` is the mean of several steps where the line is thinned; `low` and `high` are then their extremes. */
export type HoveredValue = { raw: number; smoothed?: number; low?: number; high?: number };

export type ColumnRole = "low" | "high" | "raw" | "main";
export type Column = { line: LineSpec; role: ColumnRole; attempt: number; repeated: boolean };
export type Picture = { columns: Column[]; data: [number[], ...(number | null)[][]]; structure: string };

type Drawn = { column: Column; x: number[]; y: number[] };

export function pictureOf(
  lines: readonly LineSpec[],
  read: (name: string) => CurvePoints | undefined,
  settings: { smoothing: number; positiveOnly: boolean },
): Picture {
  const drawn: Drawn[] = [];
  for (const line of lines) {
    const curve = read(line.name);
    if (!curve) continue;
    const segments = splitByAttempt(curve).filter((segment) => segment.x.length > 0);
    segments.forEach((segment, index) => {
      const main = line.dots ? segment.value : smooth(segment.value, settings.smoothing);
      const [valid, repeated] = cutAt({ ...segment, main }, segments[index + 1]?.x[0]);
      drawn.push(...drawSegment(line, valid, false, settings.smoothing), ...drawSegment(line, repeated, true, settings.smoothing));
    });
  }
  const x = unionOf(drawn.map((one) => one.x));
  const usable = (value: number | undefined) =>
    value === undefined || !Number.isFinite(value) || (settings.positiveOnly && value <= 0) ? null : value;
  return {
    columns: drawn.map((one) => one.column),
    data: [x, ...drawn.map((one) => spread(x, one, usable))],
    structure: drawn.map(({ column }) => `${column.line.name}:${column.attempt}:${column.role}:${column.repeated}`).join("|"),
  };
}

type SmoothSegment = Segment & { main: number[] };

/** What holds, and what the next attempt did again. */
function cutAt(segment: SmoothSegment, next: number | undefined): [SmoothSegment, SmoothSegment] {
  const first = next === undefined ? -1 : segment.x.findIndex((x) => x >= next);
  const at = first === -1 ? segment.x.length : first;
  const part = (from: number, to: number): SmoothSegment => ({
    attempt: segment.attempt,
    x: segment.x.slice(from, to),
    value: segment.value.slice(from, to),
    low: segment.low.slice(from, to),
    high: segment.high.slice(from, to),
    main: segment.main.slice(from, to),
  });
  return at === segment.x.length ? [segment, part(at, at)] : [part(0, at), part(at, segment.x.length)];
}

function drawSegment(line: LineSpec, segment: SmoothSegment, repeated: boolean, smoothing: number): Drawn[] {
  const column = (role: ColumnRole): Column => ({ line, role, attempt: segment.attempt, repeated });
  const drawn: Drawn[] = [];
  if (segment.x.length === 0) return drawn;
  if (isThinned(segment)) {
    drawn.push({ column: column("low"), x: segment.x, y: segment.low }, { column: column("high"), x: segment.x, y: segment.high });
  }
  if (smoothing > 0 && !line.dots) drawn.push({ column: column("raw"), x: segment.x, y: segment.value });
  drawn.push({ column: column("main"), x: segment.x, y: segment.main });
  return drawn;
}

function unionOf(rows: readonly number[][]): number[] {
  const first = rows[0];
  if (first && rows.every((row) => row === first)) return first;
  return [...new Set(rows.flat())].toSorted((a, b) => a - b);
}

function spread(x: number[], { x: own, y }: Drawn, usable: (value: number | undefined) => number | null): (number | null)[] {
  if (own === x) return y.map(usable);
  let next = 0;
  return x.map((position) => (own[next] === position ? usable(y[next++]) : null));
}

type Read = (name: string) => CurvePoints | undefined;

/** Reads curves at the height at which they are drawn. */
export function stackedRead(lines: readonly LineSpec[], read: Read): Read {
  return function height(name: string): CurvePoints | undefined {
    const curve = read(name);
    const below = lines.find((line) => line.name === name)?.below;
    const base = below === undefined ? undefined : height(below);
    if (!curve || !base) return curve && flat(curve, curve.value);
    const under = new Map(base.x.map((x, index) => [pointKey(base, x, index), base.value[index] ?? 0]));
    return flat(curve, curve.value.map((value, index) => value + (under.get(pointKey(curve, curve.x[index], index)) ?? 0)));
  };
}

const pointKey = (curve: CurvePoints, x: number | undefined, index: number) => `${curve.attempt[index]}:${x}`;

/** Thinned curves have a lowest and a highest value; the lowest of a sum is not the sum of the lowest. */
const flat = (curve: CurvePoints, value: number[]): CurvePoints => ({ ...curve, value, low: value, high: value });

/** The value of a line itself, from what lies under a cursor: lines that stand on another are neither thinned nor smoothed. */
export function ownValue(line: LineSpec, lines: readonly LineSpec[], hovered: ReadonlyMap<string, HoveredValue>): HoveredValue | undefined {
  const height = hovered.get(line.label);
  const below = lines.find((other) => other.name === line.below);
  return height === undefined || !below ? height : { raw: height.raw - (hovered.get(below.label)?.raw ?? 0) };
}

export type ChartMark = { step: number; label: string };

const NAMES: Record<string, string> = {
  learning_rate: "learning rate",
  weight_decay: "weight decay",
  clip_norm: "clip norm",
  eval_every_steps: "steps between evaluations",
  save_every_steps: "steps between checkpoints",
};

const settingName = (name: string) => NAMES[name] ?? name.replaceAll("_", " ");

/**
 * What charts mark. A run confirms every command with all settings in force, a pause as well as a new
 * learning rate, so only what differs from the confirmation before is worth a line.
 */
export function chartMarks(marks: readonly Pick<Mark, "kind" | "step" | "settings">[]): ChartMark[] {
  const result: ChartMark[] = [];
  let inForce: Record<string, number> = {};
  for (const mark of marks) {
    if (mark.kind === "resumed") {
      result.push({ step: mark.step, label: `resumed from step ${countText(mark.step)}` });
    } else if (mark.kind === "applied") {
      const changed = Object.entries(mark.settings).filter(([name, value]) => inForce[name] !== value);
      inForce = mark.settings;
      if (changed.length === 0) continue;
      result.push({ step: mark.step, label: changed.map(([name, value]) => `${settingName(name)} ${settingText(value)}`).join(", ") });
    }
  }
  return result.toSorted((a, b) => a.step - b.step);
}
