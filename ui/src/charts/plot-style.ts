import type uPlot from "uplot";
import type { Column } from "@/curves/columns";

/** Colours of what is no line. A light page sets others before it draws. */
export const paint = { ink: "#97a1b0", grid: "rgb(229 231 235 / 0.07)", mark: "#f2b84b" };
export const FONT = '11px "Inter Variable", system-ui, sans-serif';

/** A colour with some of the background shining through. */
export const faded = (hex: string, alpha: number) => `${hex}${Math.round(alpha * 255).toString(16).padStart(2, "0")}`;

const points = (colour: string, size: number): uPlot.Series.Points => ({ show: true, size, fill: colour, stroke: colour, width: 0 });

/** How one column is drawn: bands have no line of their own, raw values stand faint behind the smoothed ones. */
export function seriesOptions({ line, role, repeated }: Column, alone: boolean): uPlot.Series {
  const base: uPlot.Series = { label: line.label, spanGaps: true, points: { show: false } };
  // Steps that a later attempt did again are history.
  const strength = repeated ? 0.4 : 1;
  if (role === "low" || role === "high") return { ...base, width: 0, stroke: "transparent" };
  if (role === "raw") return { ...base, width: 1, stroke: faded(line.colour, 0.3 * strength) };
  return {
    ...base,
    width: 1.8,
    stroke: faded(line.colour, strength),
    ...(line.fill ? { fill: faded(line.colour, 0.12) } : {}),
    points: line.dots ? points(line.colour, 6) : alone ? points(line.colour, 5) : { show: false },
  };
}

/** Areas between two columns, as uPlot wants them: series numbers, the upper one first. */
export function bandsOf(columns: readonly Column[]): uPlot.Band[] {
  return columns.flatMap((column, index) => {
    if (column.role === "low") return [{ series: [index + 2, index + 1] as [number, number], fill: faded(column.line.colour, 0.2) }];
    const base = column.line.below === undefined ? -1 : columns.findIndex((other) => isBelow(other, column));
    return base === -1 ? [] : [{ series: [index + 1, base + 1] as [number, number], fill: faded(column.line.colour, 0.3) }];
  });
}

const isBelow = (other: Column, column: Column) =>
  other.line.name === column.line.below && other.role === column.role && other.attempt === column.attempt && other.repeated === column.repeated;
