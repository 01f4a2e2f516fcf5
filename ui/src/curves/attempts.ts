/** Curves are kept as they were reported: when an attempt repeats steps, both attempts' values are there. */

export type CurvePoints = {
  name: string;
  rank: number;
  axis: "step" | "time";
  x: number[];
  value: number[];
  low: number[];
  high: number[];
  attempt: number[];
  /** The newest value as it was reported, also where the points above are means of several. NaN where it was no number. */
  last: LastPoint | null;
};

export type LastPoint = { x: number; attempt: number; value: number };

/** Whether points are means of several values; `low` and `high` are then their extremes. */
export const isThinned = ({ low, high }: Pick<CurvePoints, "low" | "high">) => low.some((value, index) => value < (high[index] ?? value));

export type Segment = { attempt: number; x: number[]; value: number[]; low: number[]; high: number[] };

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
