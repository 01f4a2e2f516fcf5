/** Puts curves side by side in the form a chart draws: one shared row of x, one column for every line. */
import { type CurvePoints, isThinned, type Segment, splitByAttempt } from "./attempts";
import { smooth } from "./smooth";

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
