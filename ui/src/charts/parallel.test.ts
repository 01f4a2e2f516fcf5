import { describe, expect, it } from "vitest";
import { axisOf, colourOf, isInside, shareOf, ticksOf } from "./parallel";

describe("axes of parallel coordinates", () => {
  it("are of numbers only where every value is one", () => {
    expect(axisOf("lr", "lr", [1, 3, null])).toMatchObject({ kind: "number", low: 1, high: 3, missing: true, logarithmic: false });
    expect(axisOf("optimizer", "optimizer", ["muon", "adamw", "muon"])).toMatchObject({ kind: "word", words: ["adamw", "muon"], missing: false });
    expect(axisOf("size", "size", ["10", "9"])).toMatchObject({ words: ["9", "10"] });
    expect(axisOf("none", "none", [null, undefined])).toMatchObject({ kind: "word", words: [], missing: true });
  });

  it("count a value that is no number as missing", () => {
    const axis = axisOf("loss", "loss", [1, 2, "NaN"]);
    expect(axis).toMatchObject({ kind: "number", missing: true });
    expect(shareOf(axis, "NaN")).toBeLessThan(0);
    expect(colourOf(axis, "NaN")).toBe("var(--chart-ink)");
  });

  it("use ratios where values lie far apart", () => {
    const axis = axisOf("lr", "lr", [1e-5, 1e-3]);
    expect(axis).toMatchObject({ logarithmic: true });
    expect(shareOf(axis, 1e-4)).toBeCloseTo(0.5);
    const many = axisOf("lr", "lr", [1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5, 1e-3]);
    expect(ticksOf(many).map(({ value }) => value)).toEqual([1e-5, 3.2e-5, 1e-4, 3.2e-4, 1e-3]);
  });

  it("have their values as marks where these are few and far enough apart", () => {
    expect(ticksOf(axisOf("batch", "batch", [8, 16, 32, 8])).map(({ value }) => value)).toEqual([8, 16, 32]);
    expect(ticksOf(axisOf("batch", "batch", [8, 8.1, 32])).map(({ value }) => value)).toEqual([8, 14, 20, 26, 32]);
  });

  it("put a single value in the middle", () => {
    expect(shareOf(axisOf("a", "a", [4, 4]), 4)).toBe(0.5);
    expect(shareOf(axisOf("a", "a", ["x"]), "x")).toBe(0.5);
  });
});

describe("ranges on axes", () => {
  const axes = [axisOf("lr", "lr", [0, 10]), axisOf("kind", "kind", ["a", "b"])];

  it("keep the runs that lie in all of them", () => {
    const ranges = { lr: { from: 0.4, to: 1 }, kind: { from: -0.1, to: 0.2 } };
    expect(isInside(axes, ranges, { lr: 5, kind: "a" })).toBe(true);
    expect(isInside(axes, ranges, { lr: 5, kind: "b" })).toBe(false);
    expect(isInside(axes, ranges, { lr: 3, kind: "a" })).toBe(false);
    expect(isInside(axes, {}, { lr: null })).toBe(true);
    expect(isInside(axes, ranges, { lr: null, kind: "a" })).toBe(false);
  });
});
