/**
 * The curves of one job, as loaded and as they grow.
 *
 * Every change of a job has a position. What was loaded covers everything up to its position; a live
 * update counts only when it is newer, so that nothing is missed and nothing appears twice, however
 * often the stream reconnects. Charts are told at most once per frame.
 */
import { useSyncExternalStore } from "react";
import type { Curve, Curves, LiveSeries } from "@/api/types";
import { numberOf } from "@/text/numbers";
import type { Clock } from "./along";
import type { CurveSource } from "./chart-view";
import { curveKey, type CurvePoints, withDetail } from "./plot-data";

// More live points than a chart has pixels: time to load a thinned curve again.
const MOST_POINTS = 6_000;

/** Curves of a server, or those that a page puts together itself. */
type Loaded = Pick<Curves, "position"> & { series: readonly LoadedCurve[]; clock?: Clock[] };
type LoadedCurve = Omit<Curve, "count" | "gaps"> & Partial<Pick<Curve, "count" | "gaps">>;

const pointsOf = (curve: LoadedCurve): CurvePoints => ({ ...curve, last: curve.last && { ...curve.last, value: numberOf(curve.last.value) } });

/** A thinned point stands in the middle of its steps, and the last ones may not have happened when it was made. */
function limitThinnedPoint(curve: CurvePoints, x: number, attempt: number) {
  const last = curve.x.length - 1;
  const reached = curve.x[last];
  if (reached === undefined || reached <= x || curve.attempt[last] !== attempt) return;
  if ((curve.x[last - 1] ?? -1) < x - 0.5) curve.x[last] = x - 0.5;
}

const nextFrame = (draw: () => void) => {
  if (typeof requestAnimationFrame === "function") requestAnimationFrame(draw);
  else setTimeout(draw, 16);
};

export class CurveStore implements CurveSource {
  position = 0;
  loaded = false;
  /** True once so much has been appended that the server should thin it. */
  overfull = false;
  #curves = new Map<string, CurvePoints>();
  #detail: { from: number; curves: Map<string, CurvePoints> } | null = null;
  #listeners = new Set<() => void>();
  #announced = false;
  #clock: Clock[] = [];

  load({ position, series, clock = [] }: Loaded) {
    this.#clock = clock;
    this.#curves = new Map(series.map((curve) => [curveKey(curve), pointsOf(curve)]));
    this.position = position;
    this.loaded = true;
    this.overfull = false;
    this.#announce();
  }

  /** Adds what is new. Returns false for an update that was counted before. */
  append(position: number, series: LiveSeries[]): boolean {
    if (!this.advance(position)) return false;
    for (const added of series) {
      const key = curveKey(added);
      let curve = this.#curves.get(key);
      if (!curve) {
        const { name, rank, axis } = added;
        this.#curves.set(key, (curve = { name, rank, axis, x: [], value: [], low: [], high: [], attempt: [], last: null }));
      }
      this.#extend(curve, added);
      if (added.axis === "step" && added.rank === 0) this.#extendClock(added);
    }
    this.#announce();
    return true;
  }

  /** Notes a change that carries no points. */
  advance(position: number): boolean {
    if (position <= this.position) return false;
    this.position = position;
    return true;
  }

  #extend(curve: CurvePoints, added: LiveSeries) {
    added.x.forEach((x, index) => {
      const value = numberOf(added.value[index]);
      const attempt = added.attempt[index] ?? 1;
      curve.last = { x, attempt, value };
      if (!Number.isFinite(value)) {
        curve.gaps ??= { x: [], attempt: [] };
        curve.gaps.x.push(x);
        curve.gaps.attempt.push(attempt);
        return;
      }
      limitThinnedPoint(curve, x, attempt);
      curve.x.push(x);
      curve.value.push(value);
      curve.low.push(value);
      curve.high.push(value);
      curve.count?.push(1);
      curve.attempt.push(attempt);
    });
    if (curve.x.length > MOST_POINTS) this.overfull = true;
  }

  /** One pair for each update: between two of them a run goes at an even pace. */
  #extendClock({ x, attempt, time }: LiveSeries) {
    const [step, number, at] = [x.at(-1), attempt.at(-1), time.at(-1)];
    if (step === undefined || number === undefined || at === undefined) return;
    let clock = this.#clock.find((one) => one.attempt === number);
    if (!clock) this.#clock.push((clock = { attempt: number, x: [], time: [] }));
    if (step <= (clock.x.at(-1) ?? -1)) return;
    clock.x.push(step);
    clock.time.push(at);
  }

  clock(): readonly Clock[] {
    return this.#clock;
  }

  /** A finer view of the steps after `from`; null goes back to the whole run. */
  setDetail(detail: { from: number; curves: Pick<Loaded, "series"> } | null) {
    this.#detail = detail && { from: detail.from, curves: new Map(detail.curves.series.map((curve) => [curveKey(curve), pointsOf(curve)])) };
    this.#announce();
  }

  /** By `curveKey`: a name is the curve of rank 0. */
  curve(key: string): CurvePoints | undefined {
    const curve = this.#curves.get(key);
    const detail = this.#detail?.curves.get(key);
    return curve && detail && this.#detail && curve.axis === "step" ? withDetail(curve, detail, this.#detail.from) : curve;
  }

  names(): string[] {
    return this.all().flatMap(({ name, rank }) => (rank === 0 ? [name] : []));
  }

  /** The curves of all ranks, as whole runs have them: a detail does not change which charts there are. */
  all(): CurvePoints[] {
    return [...this.#curves.values()];
  }

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  #announce() {
    if (this.#announced) return;
    this.#announced = true;
    nextFrame(() => {
      this.#announced = false;
      this.#listeners.forEach((listener) => listener());
    });
  }
}

const RECENT = 20;

/** The median of the newest values: one slow step, such as one that compiles or saves, does not move it. */
export function recentMedian(values: readonly number[]): number | null {
  const sorted = values.slice(-RECENT).toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) return null;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? upper)) / 2;
}

export function useRecent(store: CurveStore, name: string): number | null {
  return useSyncExternalStore(store.subscribe, () => recentMedian(store.curve(name)?.value ?? []));
}
