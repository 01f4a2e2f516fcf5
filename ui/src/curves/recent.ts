import { useSyncExternalStore } from "react";
import type { CurveStore } from "./curve-store";

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
