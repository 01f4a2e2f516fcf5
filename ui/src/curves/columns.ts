/** Puts curves side by side in the form a chart draws: one shared row of x, one column for every line. */
import { type CurvePoints, type Segment, splitByAttempt } from "./attempts";
import { smooth } from "./smooth";

export type LineLook = {
  /** Series to draw. */
  name: string;
  label: string;
  colour: string;
  /** Rare points, such as evaluations: each is shown, and none is smoothed away. */
  dots?: boolean;
  /** The area below is tinted. */
  fill?: boolean;
};

export type ColumnRole = "low" | "high" | "raw" | "main";
export type Column = { line: LineLook; role: ColumnRole; attempt: number; newest: boolean };
export type Picture = { columns: Column[]; data: [number[], ...(number | null)[][]]; structure: string };

type Drawn = { column: Column; x: number[]; y: number[] };

export function pictureOf(
  lines: readonly LineLook[],
  read: (name: string) => CurvePoints | undefined,
  settings: { smoothing: number; positiveOnly: boolean },
): Picture {
  const drawn: Drawn[] = [];
  for (const line of lines) {
    const curve = read(line.name);
    if (!curve) continue;
    const segments = splitByAttempt(curve).filter((segment) => segment.x.length > 0);
    segments.forEach((segment, index) => drawn.push(...drawSegment(line, segment, index === segments.length - 1, settings.smoothing)));
  }
  const x = unionOf(drawn.map((one) => one.x));
  const usable = (value: number | undefined) =>
    value === undefined || !Number.isFinite(value) || (settings.positiveOnly && value <= 0) ? null : value;
  return {
    columns: drawn.map((one) => one.column),
    data: [x, ...drawn.map((one) => spread(x, one, usable))],
    structure: drawn.map(({ column }) => `${column.line.name}:${column.attempt}:${column.role}:${column.newest}`).join("|"),
  };
}

function drawSegment(line: LineLook, segment: Segment, newest: boolean, smoothing: number): Drawn[] {
  const column = (role: ColumnRole): Column => ({ line, role, attempt: segment.attempt, newest });
  const drawn: Drawn[] = [];
  if (!line.dots && segment.low.some((low, index) => low !== segment.high[index])) {
    drawn.push({ column: column("low"), x: segment.x, y: segment.low }, { column: column("high"), x: segment.x, y: segment.high });
  }
  if (smoothing > 0 && !line.dots) drawn.push({ column: column("raw"), x: segment.x, y: segment.value });
  const main = line.dots ? segment.value : smooth(segment.value, smoothing);
  drawn.push({ column: column("main"), x: segment.x, y: main });
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
  return x.map((place) => (own[next] === place ? usable(y[next++]) : null));
}
