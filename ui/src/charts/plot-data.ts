/**
 * What a chart draws, without drawing it: attempts, smoothing, stacked lines and marks.
 * Curves are kept as they were reported: when an attempt repeats steps, the values of both attempts are there.
 */
import type { Curve, Mark } from "@/api/types";
import { countText, settingText } from "@/text/numbers";

/** The newest value as it was reported, also where the points are means of several. NaN where it was no number. */
type LastPoint = Omit<NonNullable<Curve["last"]>, "value"> & { value: number };

/** Where values were NaN or infinite. */
type Gaps = Curve["gaps"];

export type CurvePoints = Omit<Curve, "last" | "count" | "gaps"> & {
  last: LastPoint | null;
  /** How many values each point stands for; one each where it is left out. */
  count?: number[];
  gaps?: Gaps;
};

type Named = { name: string; rank: number };

/** How a line of a chart names a curve. Rank 0 represents the run: its curves go by their names alone. */
export const curveKey = ({ name, rank }: Named) => (rank === 0 ? name : `${name} @${rank}`);

/** Whether points are means of several values; `low` and `high` are then their extremes. */
export const isThinned = ({ low, high }: Pick<CurvePoints, "low" | "high">) => low.some((value, index) => value < (high[index] ?? value));

type Columns = { x: number[]; value: number[]; low: number[]; high: number[]; count: number[] };
type Segment = Columns & { attempt: number; gaps: number[] };

/** One piece for every attempt, each in the order of x. */
export function splitByAttempt(curve: CurvePoints): Segment[] {
  const pieces = new Map<number, Segment>();
  const pieceOf = (attempt: number) => {
    let piece = pieces.get(attempt);
    if (!piece) pieces.set(attempt, (piece = { attempt, x: [], value: [], low: [], high: [], count: [], gaps: [] }));
    return piece;
  };
  curve.x.forEach((x, index) => {
    const piece = pieceOf(curve.attempt[index] ?? 1);
    const last = piece.x.at(-1);
    // A point that is out of order, or there already, would break the drawing of the line.
    if (last !== undefined && x <= last) return;
    piece.x.push(x);
    piece.value.push(curve.value[index] ?? Number.NaN);
    piece.low.push(curve.low[index] ?? Number.NaN);
    piece.high.push(curve.high[index] ?? Number.NaN);
    piece.count.push(curve.count?.[index] ?? 1);
  });
  curve.gaps?.x.forEach((x, index) => pieceOf(curve.gaps?.attempt[index] ?? 1).gaps.push(x));
  return [...pieces.values()].toSorted((a, b) => a.attempt - b.attempt);
}

export type Range = { from: number; to: number };

/** The points in a range, and one on each side of it, so that lines reach the edge of the chart. */
export function cutTo<T extends Columns>(points: T, { from, to }: Range): T {
  let first = points.x.findIndex((x) => x >= from);
  if (first === -1) first = points.x.length;
  let end = points.x.findIndex((x) => x > to);
  if (end === -1) end = points.x.length;
  const part = <V>(column: V[]) => column.slice(Math.max(0, first - 1), end + 1);
  return { ...points, x: part(points.x), value: part(points.value), low: part(points.low), high: part(points.high), count: part(points.count) };
}

/**
 * At most `most` points: neighbours become one, with the mean of all their values, the lowest and the highest.
 * The line still begins at its first and ends at its last x.
 */
export function thinTo<T extends Columns>(points: T, most: number): T {
  const every = Math.ceil(points.x.length / Math.max(1, most));
  if (every <= 1) return points;
  const thinned: Columns = { x: [], value: [], low: [], high: [], count: [] };
  for (let start = 0; start < points.x.length; start += every) {
    const end = Math.min(start + every, points.x.length);
    let [total, count, low, high] = [0, 0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    for (let index = start; index < end; index += 1) {
      const weight = points.count[index] ?? 1;
      total += (points.value[index] ?? 0) * weight;
      count += weight;
      low = Math.min(low, points.low[index] ?? low);
      high = Math.max(high, points.high[index] ?? high);
    }
    thinned.x.push(((points.x[start] ?? 0) + (points.x[end - 1] ?? 0)) / 2);
    // Rounding must not lift a mean out of its own band.
    thinned.value.push(Math.min(high, Math.max(low, total / count)));
    thinned.low.push(low);
    thinned.high.push(high);
    thinned.count.push(count);
  }
  thinned.x[0] = points.x[0] ?? 0;
  thinned.x[thinned.x.length - 1] = points.x.at(-1) ?? 0;
  return { ...points, ...thinned };
}

/** The curve with a part of it in finer detail; what arrived after the detail was fetched stays. */
export function withDetail(curve: CurvePoints, detail: CurvePoints, from: number): CurvePoints {
  const reaches = new Map<number, number>();
  detail.x.forEach((x, index) => reaches.set(detail.attempt[index] ?? 1, x));
  const count: number[] = [];
  const gaps: Gaps = { x: [], attempt: [] };
  const merged: CurvePoints = { ...curve, x: [], value: [], low: [], high: [], count, attempt: [], gaps };
  const take = (source: CurvePoints, wanted: (x: number, attempt: number) => boolean) => {
    source.gaps?.x.forEach((x, index) => {
      const attempt = source.gaps?.attempt[index] ?? 1;
      if (!wanted(x, attempt)) return;
      gaps.x.push(x);
      gaps.attempt.push(attempt);
    });
    source.x.forEach((x, index) => {
      const attempt = source.attempt[index] ?? 1;
      if (!wanted(x, attempt)) return;
      merged.x.push(x);
      merged.value.push(source.value[index] ?? Number.NaN);
      merged.low.push(source.low[index] ?? Number.NaN);
      merged.high.push(source.high[index] ?? Number.NaN);
      count.push(source.count?.[index] ?? 1);
      merged.attempt.push(attempt);
    });
  };
  take(curve, (x) => x < from);
  take(detail, (x) => x >= from);
  take(curve, (x, attempt) => x >= from && x > (reaches.get(attempt) ?? from - 1));
  return merged;
}

/**
 * An exponential moving average with its start corrected, so that the first points are not pulled towards zero.
 * A weight of 0 changes nothing; 0.99 follows only the trend. What is no number leaves the average as it was.
 */
export function smooth(values: readonly number[], weight: number): number[] {
  if (weight <= 0) return [...values];
  let average = 0;
  let share = 1;
  return values.map((value) => {
    if (!Number.isFinite(value)) return Number.NaN;
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
  /** Of a run that failed: dashed, and a cross where it ends. */
  failed?: boolean;
};

/** A line under the cursor. `raw` is the mean of several steps where the line is thinned; `low` and `high` are then their extremes. */
export type HoveredValue = { raw: number; smoothed?: number; low?: number; high?: number };

export type ColumnRole = "low" | "high" | "raw" | "main";
export type Column = { line: LineSpec; role: ColumnRole; attempt: number; repeated: boolean };
/** Where a value was no number; y is that of the neighbouring point, null where there is none. */
export type Cross = { x: number; y: number | null; line: LineSpec };
/** A value is null where the line has a gap, and undefined where only another line has a point. */
export type Picture = { columns: Column[]; data: [number[], ...(number | null | undefined)[][]]; structure: string; crosses: Cross[] };

type Drawn = { column: Column; x: number[]; y: number[] };

type PictureSettings = {
  smoothing: number;
  positiveOnly: boolean;
  /** The part in view; all of it unless told. */
  visible?: Range | null;
  /** The largest number of points of a line. */
  most?: number;
  /** Names of lines that are switched off. */
  hidden?: ReadonlySet<string>;
};

/** About one point per pixel. */
const MOST_POINTS = 1_000;

export function pictureOf(lines: readonly LineSpec[], read: (name: string) => CurvePoints | undefined, settings: PictureSettings): Picture {
  const { visible, most = MOST_POINTS, hidden, smoothing } = settings;
  const drawn: Drawn[] = [];
  const crosses: Cross[] = [];
  for (const line of lines) {
    const curve = hidden?.has(line.name) ? undefined : read(line.name);
    if (!curve) continue;
    const segments = splitByAttempt(curve);
    segments.forEach((whole, index) => {
      const segment = thinTo(visible ? cutTo(whole, visible) : whole, most);
      const main = line.dots ? segment.value : smooth(segment.value, smoothing);
      const gaps = few(visible ? segment.gaps.filter((x) => x >= visible.from && x <= visible.to) : segment.gaps, most);
      const [valid, repeated] = cutAt({ ...segment, main, gaps }, segments[index + 1]?.x[0]);
      drawn.push(...drawSegment(line, valid, false, smoothing), ...drawSegment(line, repeated, true, smoothing));
      crosses.push(...crossesOf(line, { ...segment, main, gaps }));
    });
    const end = segments.at(-1);
    if (line.failed && end?.x.length) crosses.push({ x: end.x.at(-1) ?? 0, y: end.value.at(-1) ?? null, line });
  }
  const x = unionOf(drawn.map((one) => one.x));
  const usable = (value: number | undefined) => {
    if (value === undefined || !Number.isFinite(value)) return null;
    return settings.positiveOnly && value <= 0 ? undefined : value;
  };
  return {
    columns: drawn.map((one) => one.column),
    data: [x, ...drawn.map((one) => spread(x, one, usable))],
    structure: drawn.map(({ column }) => `${column.line.name}:${column.attempt}:${column.role}:${column.repeated}`).join("|"),
    crosses,
  };
}

function few(values: number[], most: number): number[] {
  const every = Math.ceil(values.length / most);
  return every <= 1 ? values : values.filter((_value, index) => index % every === 0);
}

/** One cross for each stretch of values that are no numbers. */
function crossesOf(line: LineSpec, { x, main, gaps }: SmoothSegment): Cross[] {
  const crosses: Cross[] = [];
  let next = 0;
  let before = -1;
  for (const gap of gaps) {
    while (next < x.length && (x[next] ?? 0) <= gap) next += 1;
    if (crosses.length > 0 && next === before) continue;
    before = next;
    crosses.push({ x: gap, y: main[next - 1] ?? main[next] ?? null, line });
  }
  return crosses;
}

type SmoothSegment = Segment & { main: number[] };

/** What holds, and what the next attempt did again. */
function cutAt(segment: SmoothSegment, next: number | undefined): [SmoothSegment, SmoothSegment] {
  const first = next === undefined ? -1 : segment.x.findIndex((x) => x >= next);
  const at = first === -1 ? segment.x.length : first;
  const part = (from: number, to: number, repeated: boolean): SmoothSegment => ({
    attempt: segment.attempt,
    x: segment.x.slice(from, to),
    value: segment.value.slice(from, to),
    low: segment.low.slice(from, to),
    high: segment.high.slice(from, to),
    count: segment.count.slice(from, to),
    main: segment.main.slice(from, to),
    gaps: segment.gaps.filter((x) => (x >= (next ?? Number.POSITIVE_INFINITY)) === repeated),
  });
  return [part(0, at, false), part(at, segment.x.length, true)];
}

function drawSegment(line: LineSpec, segment: SmoothSegment, repeated: boolean, smoothing: number): Drawn[] {
  const column = (role: ColumnRole): Column => ({ line, role, attempt: segment.attempt, repeated });
  const drawn: Drawn[] = [];
  if (segment.x.length === 0 && segment.gaps.length === 0) return drawn;
  const x = withGaps(segment);
  const put = (role: ColumnRole, values: number[]) => drawn.push({ column: column(role), x, y: x === segment.x ? values : atPositions(x, segment.x, values) });
  if (isThinned(segment)) {
    put("low", segment.low);
    put("high", segment.high);
  }
  if (smoothing > 0 && !line.dots) put("raw", segment.value);
  put("main", segment.main);
  return drawn;
}

/** The positions of the points, and those between them where a value was no number. */
function withGaps({ x, gaps }: Segment): number[] {
  const known = new Set(x);
  const between = gaps.filter((gap) => !known.has(gap));
  return between.length === 0 ? x : [...new Set([...x, ...between])].toSorted((a, b) => a - b);
}

function atPositions(x: readonly number[], own: readonly number[], values: readonly number[]): number[] {
  let next = 0;
  return x.map((position) => (own[next] === position ? (values[next++] ?? Number.NaN) : Number.NaN));
}

function unionOf(rows: readonly number[][]): number[] {
  const first = rows[0];
  if (first && rows.every((row) => row === first)) return first;
  return [...new Set(rows.flat())].toSorted((a, b) => a - b);
}

function spread(x: number[], { x: own, y }: Drawn, usable: (value: number | undefined) => number | null | undefined): (number | null | undefined)[] {
  if (own === x) return y.map(usable);
  let next = 0;
  return x.map((position) => (own[next] === position ? usable(y[next++]) : undefined));
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

/** What happened at a step. `series`: the line on which a ring marks the best value. */
export type ChartMark = { step: number; label: string; kind?: "resume" | "change" | "best"; series?: string };

/** A ring on the evaluation loss at the step of the best checkpoint. */
export const bestMark = (step: number): ChartMark => ({ step, label: "best checkpoint", kind: "best", series: "eval/loss" });

const NAMES: Record<string, string> = {
  learning_rate: "learning rate",
  weight_decay: "weight decay",
  clip_norm: "clip norm",
  eval_every_steps: "steps between evaluations",
  save_every_steps: "steps between checkpoints",
};

/** Steps of an epoch, where a run says how far it is in both. */
export function stepsPerEpoch({ step, epoch, total_steps: steps, epochs }: { step: number | null; epoch: number | null; total_steps: number | null; epochs: number | null }): number | null {
  // The epoch is rounded by whoever says it; the length of an epoch must not change with every step.
  if (step && epoch) return Math.max(1, Math.round(step / epoch));
  return steps && epochs ? steps / epochs : null;
}

const settingName = (name: string) => NAMES[name] ?? name.replaceAll("_", " ");

/**
 * What charts mark. A run confirms every command with all settings in force, a pause as well as a new
 * learning rate, so only what differs from the confirmation before is worth a line. `best`: the step of the best
 * checkpoint.
 */
export function chartMarks(marks: readonly Pick<Mark, "kind" | "step" | "settings">[], best: number | null = null): ChartMark[] {
  const result: ChartMark[] = best === null ? [] : [bestMark(best)];
  let inForce: Record<string, number> = {};
  for (const mark of marks) {
    if (mark.kind === "resumed") {
      result.push({ step: mark.step, label: `resumed from step ${countText(mark.step)}`, kind: "resume" });
    } else if (mark.kind === "applied") {
      const changed = Object.entries(mark.settings).filter(([name, value]) => inForce[name] !== value);
      inForce = mark.settings;
      if (changed.length === 0) continue;
      result.push({ step: mark.step, label: changed.map(([name, value]) => `${settingName(name)} ${settingText(value)}`).join(", "), kind: "change" });
    }
  }
  return result.toSorted((a, b) => a.step - b.step);
}
