import type { CurvePoints } from "@/curves/attempts";
import type { ChartMark } from "@/curves/chart-marks";
import type { LineLook } from "@/curves/columns";
import { countText } from "@/text/numbers";

type Read = (name: string) => CurvePoints | undefined;

type Described = { title: string; axis: "step" | "time"; over?: "tokens"; lines: readonly LineLook[]; format: (value: number) => string };

/** A chart in words, for those who do not see it: the last, lowest and highest value of every line, and its marks. */
export function describeChart({ title, axis, over: counted, lines, format }: Described, read: Read, marks: readonly ChartMark[]): string {
  const parts = lines.flatMap((line) => {
    const curve = read(line.name);
    const last = curve?.value.at(-1);
    if (!curve || last === undefined) return [];
    let low = last;
    let high = last;
    for (const value of curve.low) low = Math.min(low, value);
    for (const value of curve.high) high = Math.max(high, value);
    return [`${line.label}: last ${format(last)}, lowest ${format(low)}, highest ${format(high)}`];
  });
  const over = counted ?? (axis === "step" ? "steps" : "time");
  if (parts.length === 0) return `${title} over ${over}. No values yet.`;
  const marked = axis === "step" ? marks.map((mark) => `Step ${countText(mark.step)}: ${mark.label}.`) : [];
  return [`${title} over ${over}.`, `${parts.join(". ")}.`, ...marked].join(" ");
}

export type TableRow = { key: string; x: number; attempt: number; values: (number | null)[] };

const MOST_ROWS = 200;

/** The newest points as rows, for the table behind a chart. */
export function tableRows(lines: readonly LineLook[], read: Read): TableRow[] {
  const rows = new Map<string, TableRow>();
  lines.forEach((line, column) => {
    const curve = read(line.name);
    curve?.x.forEach((x, index) => {
      const attempt = curve.attempt[index] ?? 1;
      const key = `${attempt}:${x}`;
      let row = rows.get(key);
      if (!row) rows.set(key, (row = { key, x, attempt, values: lines.map(() => null) }));
      row.values[column] = curve.value[index] ?? null;
    });
  });
  return [...rows.values()].toSorted((a, b) => b.attempt - a.attempt || b.x - a.x).slice(0, MOST_ROWS);
}
