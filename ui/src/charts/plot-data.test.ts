import { describe, expect, it } from "vitest";
import type { LiveSeries } from "@/api/types";
import { CurveStore, recentMedian } from "./curve-store";
import { chartMarks, type CurvePoints, ownValue, pictureOf, smooth, splitByAttempt, stackedRead, withDetail } from "./plot-data";

function curve(points: [x: number, value: number, attempt?: number][], name = "train/loss"): Omit<CurvePoints, "last"> & { last: null } {
  const value = points.map((point) => point[1]);
  return {
    name,
    rank: 0,
    axis: "step",
    x: points.map((point) => point[0]),
    value,
    low: [...value],
    high: [...value],
    attempt: points.map((point) => point[2] ?? 1),
    last: null,
  };
}

const live = (x: number[], value: LiveSeries["value"], attempt = 1): LiveSeries => ({
  name: "train/loss",
  rank: 0,
  axis: "step",
  x,
  value,
  attempt: x.map(() => attempt),
  time: x,
});

const lines = [
  { name: "train/loss", label: "train", colour: "#fff" },
  { name: "eval/loss", label: "eval", colour: "#fff", dots: true },
];
const read = (curves: CurvePoints[]) => (name: string) => curves.find((one) => one.name === name);

const structure = (points: [number, number, number?][]) =>
  pictureOf(lines, read([curve(points)]), { smoothing: 0, positiveOnly: false }).structure;

const applied = (step: number, settings: Record<string, number>) => ({ kind: "applied", step, settings });

describe("the curves of a job", () => {
  it("grow by what is newer than what was loaded", () => {
    const store = new CurveStore();
    store.load({ position: 10, series: [curve([[1, 5]])] });
    expect(store.append(11, [live([2, 3], [4, 3])])).toBe(true);
    expect(store.curve("train/loss")?.x).toEqual([1, 2, 3]);
    expect(store.curve("train/loss")?.high).toEqual([5, 4, 3]);
  });

  it("ignore an update that was counted before, however often it comes", () => {
    const store = new CurveStore();
    store.load({ position: 10, series: [] });
    store.append(11, [live([1], [5])]);
    expect(store.append(11, [live([1], [5])])).toBe(false);
    expect(store.append(10, [live([1], [5])])).toBe(false);
    expect(store.curve("train/loss")?.x).toEqual([1]);
  });

  it("begin anew after a reset, and go on from there", () => {
    const store = new CurveStore();
    store.load({ position: 3, series: [curve([[1, 9]])] });
    store.append(4, [live([2], [8])]);
    store.load({ position: 900, series: [curve([[50, 2]])] });
    expect(store.append(5, [live([3], [7])])).toBe(false);
    store.append(901, [live([51], [1.9])]);
    expect(store.curve("train/loss")?.x).toEqual([50, 51]);
  });

  it("grow on from a thinned curve whose last piece reaches ahead", () => {
    const store = new CurveStore();
    store.load({ position: 1, series: [curve([[8, 5], [24, 4]])] });
    store.append(2, [live([20, 21], [3.9, 3.8])]);
    const points = store.curve("train/loss");
    expect(points && splitByAttempt(points)[0]?.x).toEqual([8, 19.5, 20, 21]);
  });

  it("leave out values that are not numbers", () => {
    const store = new CurveStore();
    store.append(1, [live([1, 2, 3], [5, "NaN", 4])]);
    expect(store.curve("train/loss")?.x).toEqual([1, 3]);
  });

  it("say the last value as it was reported, thinned or not, number or not", () => {
    const store = new CurveStore();
    const thinned = { ...curve([[8, 5], [24, 4]]), low: [4, 3], high: [6, 5], last: { x: 31, attempt: 1, value: "Infinity" as const } };
    store.load({ position: 1, series: [thinned] });
    expect(store.curve("train/loss")?.last).toEqual({ x: 31, attempt: 1, value: Number.POSITIVE_INFINITY });
    store.append(2, [live([32, 33], [3.5, "NaN"])]);
    expect(store.curve("train/loss")?.last).toEqual({ x: 33, attempt: 1, value: Number.NaN });
    expect(store.curve("train/loss")?.x).toEqual([8, 24, 32]);
  });

  it("ask to be thinned when they have become too long", () => {
    const store = new CurveStore();
    const many = Array.from({ length: 6001 }, (_, index) => index);
    store.append(1, [live(many, many)]);
    expect(store.overfull).toBe(true);
    store.load({ position: 2, series: [] });
    expect(store.overfull).toBe(false);
  });
});

describe("attempts", () => {
  it("are separate pieces, even where they repeat steps", () => {
    const pieces = splitByAttempt(curve([[1, 5], [2, 4], [3, 3], [2, 3.9, 2], [3, 2.8, 2], [4, 2, 2]]));
    expect(pieces.map((piece) => piece.x)).toEqual([[1, 2, 3], [2, 3, 4]]);
    expect(pieces[1]?.value).toEqual([3.9, 2.8, 2]);
  });

  it("take a detail in the middle and keep what arrived after it was fetched", () => {
    const coarse = curve([[10, 1], [20, 2], [30, 3], [40, 4], [41, 4.1], [25, 9, 2]]);
    const detail = curve([[20, 2], [21, 2.1], [30, 3], [40, 4]]);
    const merged = withDetail(coarse, detail, 20);
    expect(splitByAttempt(merged).map((piece) => piece.x)).toEqual([[10, 20, 21, 30, 40, 41], [25]]);
  });
});

describe("smoothing", () => {
  it("changes nothing at weight 0, and does not start from zero otherwise", () => {
    expect(smooth([3, 1], 0)).toEqual([3, 1]);
    expect(smooth([5, 5, 5], 0.9).every((value) => Math.abs(value - 5) < 1e-9)).toBe(true);
    expect(smooth([4, 0], 0.5)[1]).toBeCloseTo(4 / 3);
  });
});

describe("a picture", () => {
  it("shares one row of x between lines that report at different steps", () => {
    const picture = pictureOf(lines, read([curve([[1, 5], [2, 4]]), curve([[2, 4.5]], "eval/loss")]), { smoothing: 0, positiveOnly: false });
    expect(picture.data).toEqual([[1, 2], [5, 4], [undefined, 4.5]]);
  });

  it("draws the raw line behind the smoothed one, and never smooths evaluations", () => {
    const picture = pictureOf(lines, read([curve([[1, 5], [2, 4]]), curve([[2, 4.5]], "eval/loss")]), { smoothing: 0.6, positiveOnly: false });
    expect(picture.columns.map((column) => `${column.line.label} ${column.role}`)).toEqual(["train raw", "train main", "eval main"]);
    expect(picture.data[3]).toEqual([undefined, 4.5]);
  });

  it("has a band only where points were thinned", () => {
    const thinned = { ...curve([[8, 5], [24, 4]]), low: [4, 3], high: [6, 5] };
    expect(pictureOf(lines, read([thinned]), { smoothing: 0, positiveOnly: false }).columns.map((column) => column.role)).toEqual(["low", "high", "main"]);
  });

  it("smooths means, never extremes", () => {
    const thinned = { ...curve([[8, 2], [24, 4], [40, 2]]), low: [1, 1, 1], high: [8, 8, 8] };
    const [, low, high, raw, main] = pictureOf(lines, read([thinned]), { smoothing: 0.6, positiveOnly: false }).data;
    expect([low, high, raw]).toEqual([[1, 1, 1], [8, 8, 8], [2, 4, 2]]);
    expect(main?.every((value) => typeof value === "number" && value >= 2 && value <= 4)).toBe(true);
  });

  it("keeps its structure while points are appended, and changes it with a new attempt", () => {
    expect(structure([[1, 5]])).toBe(structure([[1, 5], [2, 4]]));
    expect(structure([[1, 5]])).not.toBe(structure([[1, 5], [1, 4, 2]]));
  });

  it("sets apart what a later attempt did again, and only that", () => {
    const picture = pictureOf(lines, read([curve([[1, 5], [2, 4], [3, 3], [3, 2.9, 2], [4, 2, 2]])]), { smoothing: 0, positiveOnly: false });
    expect(picture.columns.map((column) => [column.attempt, column.repeated])).toEqual([[1, false], [1, true], [2, false]]);
    expect(picture.data.slice(1)).toEqual([[5, 4, undefined, undefined], [undefined, undefined, 3, undefined], [undefined, undefined, 2.9, 2]]);
  });

  it("leaves out what a logarithm cannot show", () => {
    expect(pictureOf(lines, read([curve([[1, 0], [2, 4]])]), { smoothing: 0, positiveOnly: true }).data[1]).toEqual([undefined, 4]);
  });
});

describe("values that are no numbers", () => {
  const broken = { ...curve([[1, 5], [2, 4], [5, 3]]), gaps: { x: [3, 4], attempt: [1, 1] } };

  it("are a gap in the line, with one cross for each stretch of them", () => {
    const picture = pictureOf(lines, read([broken]), { smoothing: 0, positiveOnly: false });
    expect(picture.data).toEqual([[1, 2, 3, 4, 5], [5, 4, null, null, 3]]);
    expect(picture.crosses.map(({ x, y }) => [x, y])).toEqual([[3, 4]]);
  });

  it("do not stop the smoothing", () => {
    const [, , main] = pictureOf(lines, read([broken]), { smoothing: 0.6, positiveOnly: false }).data;
    expect(main?.map((value) => typeof value)).toEqual(["number", "number", "object", "object", "number"]);
  });

  it("leave a mean of others whole, and mark it", () => {
    const partly = { ...curve([[8, 5], [24, 4]]), low: [4, 3], high: [6, 5], gaps: { x: [24], attempt: [1] } };
    const picture = pictureOf(lines, read([partly]), { smoothing: 0, positiveOnly: false });
    expect(picture.data[3]).toEqual([5, 4]);
    expect(picture.crosses.map(({ x, y }) => [x, y])).toEqual([[24, 4]]);
  });

  it("are known while they arrive", () => {
    const store = new CurveStore();
    store.append(1, [live([1, 2, 3], [5, "NaN", 4])]);
    expect(store.curve("train/loss")?.gaps).toEqual({ x: [2], attempt: [1] });
  });
});

describe("marks", () => {
  it("name what changed, and stay silent about commands that changed no setting", () => {
    const marks = chartMarks([
      applied(5, {}),
      applied(10, { learning_rate: 0.0001 }),
      applied(20, { learning_rate: 0.0001 }),
      { kind: "resumed", step: 8000, settings: {} },
      applied(30, { learning_rate: 0.0001, clip_norm: 0.5 }),
    ]);
    expect(marks).toEqual([
      { step: 10, label: "learning rate 1e-4", kind: "change" },
      { step: 30, label: "clip norm 0.5", kind: "change" },
      { step: 8000, label: "resumed from step 8,000", kind: "resume" },
    ]);
  });
});

describe("lines that stand on one another", () => {
  const parts = [
    { name: "a", label: "a", colour: "#fff" },
    { name: "b", label: "b", colour: "#fff", below: "a" },
    { name: "c", label: "c", colour: "#fff", below: "b" },
  ];
  const drawn = stackedRead(parts, read([curve([[1, 2], [2, 3]], "a"), curve([[1, 1], [2, 1]], "b"), curve([[1, 5], [2, 7]], "c")]));

  it("are drawn on top of what is below them", () => {
    expect(["a", "b", "c"].map((name) => drawn(name)?.value)).toEqual([[2, 3], [3, 4], [8, 11]]);
  });

  it("are matched by step and attempt, not by order", () => {
    const heights = stackedRead(parts, read([curve([[1, 2], [5, 9, 2], [2, 3]], "a"), curve([[2, 1], [5, 1, 2]], "b")]));
    expect(heights("b")?.value).toEqual([4, 10]);
  });

  it("tell their own values under the cursor", () => {
    const heights = new Map([["a", { raw: 2 }], ["b", { raw: 3 }], ["c", { raw: 8 }]]);
    expect(parts.map((line) => ownValue(line, parts, heights)?.raw)).toEqual([2, 1, 5]);
    expect(parts.map((line) => ownValue(line, parts, new Map()))).toEqual([undefined, undefined, undefined]);
  });
});

describe("the recent value of a curve", () => {
  it("is not moved by one slow step", () => {
    expect(recentMedian([100, 101, 3, 99])).toBe(99.5);
    expect(recentMedian([])).toBeNull();
  });

  it("forgets the beginning", () => {
    expect(recentMedian([...Array.from({ length: 50 }, () => 1), ...Array.from({ length: 20 }, () => 8)])).toBe(8);
  });
});
