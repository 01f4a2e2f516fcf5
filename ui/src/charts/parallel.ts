/** Parallel coordinates without drawing: axes of numbers and of words, where a value stands on them, and ranges. */
import { isNonFinite } from "@/text/numbers";

/** A value as a table of runs has it; NaN and the infinities come as words. */
export type ParallelValue = string | number | boolean | null;

/** `kind` number: from the lowest to the highest value; `few`: all its values, where there are not many. Words: each has its own place, in order. */
export type ParallelAxis = { name: string; title: string; missing: boolean } & ({ kind: "number"; low: number; high: number; logarithmic: boolean; few: readonly number[] } | { kind: "word"; words: string[] });

/** A part of an axis, as shares of its length: 0 is its lower end. */
export type AxisRange = { from: number; to: number };

/** From so many times the lowest value on, equal ratios say more than equal differences. */
const LOGARITHMIC_FROM = 50;
/** So many different values are the marks of their axis. */
const FEW = 6;
/** Where runs without a value stand: below the axis. */
const MISSING_SHARE = -0.09;

const isMissing = (value: ParallelValue | undefined): boolean => value === null || value === undefined || isNonFinite(value);

/** The axis of a column. Numbers alone make an axis of numbers; anything else makes one of words. */
export function axisOf(name: string, title: string, values: readonly (ParallelValue | undefined)[]): ParallelAxis {
  const known = values.filter((value): value is string | number | boolean => !isMissing(value));
  const missing = known.length < values.length;
  const numbers = known.filter((value): value is number => typeof value === "number");
  if (numbers.length === known.length && known.length > 0) {
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    const distinct = [...new Set(numbers)].toSorted((a, b) => a - b);
    return { name, title, missing, kind: "number", low, high, logarithmic: low > 0 && high / low >= LOGARITHMIC_FROM, few: distinct.length <= FEW ? distinct : [] };
  }
  const words = [...new Set(known.map(String))].toSorted((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return { name, title, missing, kind: "word", words };
}

/** The place of a value as a share of the axis, 0 at its lower end; below 0 for a run that has none. */
export function shareOf(axis: ParallelAxis, value: ParallelValue | undefined): number {
  if (isMissing(value)) return MISSING_SHARE;
  if (axis.kind === "word") return axis.words.length < 2 ? 0.5 : axis.words.indexOf(String(value)) / (axis.words.length - 1);
  const { low, high, logarithmic } = axis;
  if (typeof value !== "number" || low === high) return 0.5;
  return logarithmic ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
}

const TICKS = 4;
/** Digits of a mark between the ends. */
const DIGITS = 2;
/** Marks closer than this share of an axis would cover each other. */
const LEAST_APART = 0.07;

/** Marks of an axis: its words, or some numbers with both ends among them. */
export function ticksOf(axis: ParallelAxis): { share: number; value: number | string }[] {
  if (axis.kind === "word") return axis.words.map((word) => ({ share: shareOf(axis, word), value: word }));
  const { low, high, logarithmic } = axis;
  if (low === high) return [{ share: 0.5, value: low }];
  const values = axis.few.map((value) => ({ share: shareOf(axis, value), value }));
  if (values.length > 1 && values.every(({ share }, index) => index === 0 || share - (values[index - 1]?.share ?? 0) >= LEAST_APART)) return values;
  return Array.from({ length: TICKS + 1 }, (_, index) => {
    const share = index / TICKS;
    if (index === 0 || index === TICKS) return { share, value: index === 0 ? low : high };
    const exact = logarithmic ? low * (high / low) ** share : low + (high - low) * share;
    const value = Number(exact.toPrecision(logarithmic ? DIGITS : DIGITS + 2));
    return { share: shareOf(axis, value), value };
  });
}

/** Whether a run lies in every range that was drawn. */
export function isInside(axes: readonly ParallelAxis[], ranges: Readonly<Record<string, AxisRange>>, cells: Readonly<Record<string, ParallelValue | undefined>>): boolean {
  return axes.every((axis) => {
    const range = ranges[axis.name];
    if (!range) return true;
    const share = shareOf(axis, cells[axis.name]);
    // Half a pixel of a usual chart: an end that was drawn on a value counts it.
    return share >= range.from - 0.003 && share <= range.to + 0.003;
  });
}

/** Low is teal, high is amber, as a colour that a style can have; grey without a value. */
export function colourOf(axis: ParallelAxis, value: ParallelValue | undefined): string {
  if (isMissing(value)) return "var(--chart-ink)";
  const percent = Math.round(Math.min(1, Math.max(0, shareOf(axis, value))) * 100);
  return `color-mix(in oklab, var(--chart-amber) ${percent}%, var(--chart-teal))`;
}
