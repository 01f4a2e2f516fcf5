import { describe, expect, it } from "vitest";
import type { CurvePoints } from "@/charts/plot-data";
import { across, decades, down, frameOf, livePoints, pathOf } from "./learning-rate-finder";

const point = (rate: number, loss: number) => ({ learning_rate: rate, loss, smoothed: loss });
const curve = (x: number[], value: number[]): CurvePoints => ({ name: "", rank: 0, axis: "step", x, value, low: value, high: value, attempt: x.map(() => 1), last: null });

describe("the picture of a learning-rate finder", () => {
  const points = [point(1e-6, 5), point(1e-4, 4), point(1e-2, 2), point(1e-1, 900)];
  const frame = frameOf(points);
  if (!frame) throw new Error("there are points");

  it("keeps the fall readable when the loss explodes at its end", () => {
    expect(frame.high).toBeLessThan(8);
    expect(down(frame, 2)).toBeGreaterThan(80);
    expect(pathOf(points, frame, (one) => one.smoothed)).not.toContain("100.00");
  });

  it("gives every decade the same width", () => {
    expect([1e-6, 1e-5, 1e-1].map((rate) => Math.round(across(frame, rate)))).toEqual([0, 20, 100]);
    expect(decades(frame)).toHaveLength(6);
  });

  it("is empty before the first point, and stands on its feet with one", () => {
    expect(frameOf([])).toBeNull();
    const alone = frameOf([point(1e-5, 3)]);
    expect(alone && [across(alone, 1e-5), down(alone, 3)].every(Number.isFinite)).toBe(true);
  });
});

it("pairs the two live curves by step", () => {
  const result = livePoints(curve([1, 2, 3], [1e-5, 1e-4, 1e-3]), curve([1, 3], [5, 4]));
  expect(result.map((one) => [one.learning_rate, one.loss])).toEqual([[1e-5, 5], [1e-3, 4]]);
  expect(livePoints(undefined, curve([1], [1]))).toEqual([]);
});
