import { counted as numbered, countText } from "@/text/numbers";
import type { Along } from "./along";
import type { ChartSpec } from "./chart-spec";
import { type ChartMark, type CurvePoints, type HoveredValue, isThinned, type LineSpec } from "./plot-data";

type Read = (name: string) => CurvePoints | undefined;

type Described = Pick<ChartSpec, "title" | "axis" | "over" | "lines" | "format"> & { along?: Along };

const OVER: Record<Along, string> = { step: "steps", time: "time", tokens: "tokens", epoch: "epochs" };

/** A chart in words, for those who do not see it: the last, lowest and highest value of every line, and its marks. */
export function describeChart({ title, axis, along, over: given, lines, format }: Described, read: Read, marks: readonly ChartMark[]): string {
  const sentences = lines.flatMap((line) => {
    const curve = read(line.name);
    if (!curve?.last) return [];
    const parts = [`${line.label}: last ${format(curve.last.value)}`];
    const [[low], [, high]] = [endsOf(curve.low), endsOf(curve.high)];
    if (low <= high) parts.push(`lowest ${format(low)}`, `highest ${format(high)}`);
    if (isThinned(curve)) parts.push("the line is the mean of several steps");
    const gaps = curve.gaps?.x.length ?? 0;
    // Of a thinned line only the means that hold such values are known, and how many depends on the thinning.
    if (gaps > 0) parts.push(isThinned(curve) ? "some values are NaN or infinite" : `${numbered(gaps, "value is", "values are")} NaN or infinite`);
    return [parts.join(", ")];
  });
  const over = given ?? OVER[axis === "time" ? "time" : (along ?? "step")];
  if (sentences.length === 0) return `${title} over ${over}. No values yet.`;
  const marked = axis === "step" ? marks.map((mark) => `Step ${countText(mark.step)}: ${mark.label}.`) : [];
  return [`${title} over ${over}.`, `${sentences.join(". ")}.`, ...marked].join(" ");
}

/** The smallest and the largest finite number; an empty range, from Infinity to -Infinity, where there is none. */
function endsOf(values: readonly number[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}

/** What a line is under the cursor, each number with its name. */
export function hoveredParts({ raw, smoothed, low, high }: HoveredValue, format: (value: number) => string): { name: string; text: string }[] {
  const parts = [{ name: low === undefined ? "raw" : "raw mean", text: format(raw) }];
  if (low !== undefined && high !== undefined) parts.push({ name: "range", text: `${format(low)} to ${format(high)}` });
  if (smoothed !== undefined) parts.push({ name: "smoothed", text: format(smoothed) });
  return parts;
}

type TableCell = { value: number; low?: number; high?: number; count?: number };
export type TableRow = { key: string; x: number; attempt: number; cells: (TableCell | null)[] };

const MOST_ROWS = 200;

/** The newest points as rows, for the table behind a chart; the last reported value is one of them. */
export function tableRows(lines: readonly LineSpec[], read: Read): TableRow[] {
  return tableCells(lines, read, true)
    .toSorted((a, b) => b.attempt - a.attempt || b.x - a.x)
    .slice(0, MOST_ROWS);
}

/** All points as rows, one for each attempt and position. `withLast`: the last reported value in place of the mean that holds it. */
export function tableCells(lines: readonly LineSpec[], read: Read, withLast = false): TableRow[] {
  const rows = new Map<string, TableRow>();
  lines.forEach((line, column) => {
    const curve = read(line.name);
    if (!curve) return;
    const put = (x: number, attempt: number, cell: TableCell) => {
      const key = `${attempt}:${x}`;
      let row = rows.get(key);
      if (!row) rows.set(key, (row = { key, x, attempt, cells: lines.map(() => null) }));
      row.cells[column] = cell;
    };
    curve.x.forEach((x, index) => {
      const [value, low, high] = [curve.value[index] ?? Number.NaN, curve.low[index], curve.high[index]];
      const count = curve.count?.[index] ?? 1;
      const several = count > 1 ? { count } : {};
      put(x, curve.attempt[index] ?? 1, low !== undefined && high !== undefined && low < high ? { value, low, high, ...several } : { value, ...several });
    });
    curve.gaps?.x.forEach((x, index) => {
      const attempt = curve.gaps?.attempt[index] ?? 1;
      if (!rows.get(`${attempt}:${x}`)?.cells[column]) put(x, attempt, { value: Number.NaN, count: 0 });
    });
    if (withLast && curve.last) put(curve.last.x, curve.last.attempt, { value: curve.last.value });
  });
  return [...rows.values()];
}
