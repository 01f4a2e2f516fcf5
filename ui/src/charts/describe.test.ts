import { describe, expect, it } from "vitest";
import type { CurvePoints } from "./plot-data";
import { metricText } from "@/text/numbers";
import { describeChart, hoveredParts, tableRows } from "./describe";

const lines = [{ name: "train/loss", label: "train", colour: "#fff" }];
const thinned: CurvePoints = { name: "train/loss", rank: 0, axis: "step", x: [32, 96], value: [2.06, 1.98], low: [2, 1.127], high: [8, 2], attempt: [1, 1], last: { x: 127, attempt: 1, value: 1.127 } };
const describeCurve = (curve: CurvePoints) => describeChart({ title: "Loss", axis: "step", lines, format: metricText }, () => curve, []);
const text = (value: Parameters<typeof hoveredParts>[0]) => hoveredParts(value, metricText).map((part) => `${part.name} ${part.text}`);


describe("a chart in words", () => {
  it("says the last reported value, the extremes, and that a thinned line is drawn as means", () => {
    expect(describeCurve(thinned)).toBe("Loss over steps. train: last 1.127, lowest 1.127, highest 8, the line is the mean of several steps.");
  });

  it("says a last value that is no number", () => {
    const empty = { ...thinned, x: [], value: [], low: [], high: [], attempt: [] };
    expect(describeCurve({ ...empty, last: { x: 3, attempt: 1, value: Number.NaN } })).toBe("Loss over steps. train: last NaN.");
    expect(describeCurve({ ...empty, last: null })).toBe("Loss over steps. No values yet.");
  });

  it("names every number under the cursor", () => {
    expect(text({ raw: 1.5 })).toEqual(["raw 1.5"]);
    expect(text({ raw: 1.5, smoothed: 1.6 })).toEqual(["raw 1.5", "smoothed 1.6"]);
    expect(text({ raw: 2.06, smoothed: 2.07, low: 2, high: 8 })).toEqual(["raw mean 2.06", "range 2 to 8", "smoothed 2.07"]);
  });

  it("has the last reported value in its table, above the means", () => {
    expect(tableRows(lines, () => thinned).map((row) => [row.x, row.cells[0]])).toEqual([
      [127, { value: 1.127 }],
      [96, { value: 1.98, low: 1.127, high: 2 }],
      [32, { value: 2.06, low: 2, high: 8 }],
    ]);
  });
});
