/** What has to be true of every chart, whatever the run reports. Runs are made at random, each from its own number. */
import { describe, expect, it } from "vitest";
import { mapped, StepMap } from "./along";
import { csvOf } from "./export-chart";
import { type CurvePoints, cutTo, pictureOf, splitByAttempt, thinTo } from "./plot-data";

const RUNS = Array.from({ length: 40 }, (_, seed) => seed);

/** Numbers from 0 to 1 that are the same for the same seed (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed * 2_654_435_761 + 1;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

type Raw = { step: number; value: number; attempt: number }[];

/** A run with spikes, huge and tiny values, NaN, steps that are left out, and attempts that repeat some. */
function runOf(seed: number): Raw {
  const random = randomFrom(seed);
  const raw: Raw = [];
  let step = 0;
  const attempts = 1 + Math.floor(random() * 3);
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    const length = 1 + Math.floor(random() * (seed % 3 === 0 ? 4_000 : 60));
    for (let count = 0; count < length; count += 1) {
      step += 1 + Math.floor(random() * 3);
      const kind = random();
      const value = kind < 0.02 ? Number.NaN : kind < 0.03 ? Number.POSITIVE_INFINITY : kind < 0.06 ? random() * 1e9 : kind < 0.08 ? -random() * 1e-9 : 1 + random();
      raw.push({ step, value, attempt });
    }
    step = Math.max(0, step - Math.floor(random() * 50));
  }
  return raw;
}

/** As a source gives a curve of single points. */
function curveOf(raw: Raw): CurvePoints {
  const finite = raw.filter(({ value }) => Number.isFinite(value));
  const gaps = raw.filter(({ value }) => !Number.isFinite(value));
  const value = finite.map((point) => point.value);
  const last = raw.at(-1);
  return {
    name: "train/loss",
    rank: 0,
    axis: "step",
    x: finite.map(({ step }) => step),
    value,
    low: value,
    high: value,
    attempt: finite.map(({ attempt }) => attempt),
    gaps: { x: gaps.map(({ step }) => step), attempt: gaps.map(({ attempt }) => attempt) },
    last: last ? { x: last.step, attempt: last.attempt, value: last.value } : null,
  };
}

const line = { name: "train/loss", label: "train", colour: "#fff" };
const close = (a: number, b: number) => Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(a), Math.abs(b));

describe.each(RUNS)("run %i", (seed) => {
  const raw = runOf(seed);
  const curve = curveOf(raw);

  it("has every point in a band, the mean of a bucket as its value, and loses none", () => {
    for (const segment of splitByAttempt(curve)) {
      const most = 2 + (seed % 40);
      const thinned = thinTo(segment, most);
      expect(thinned.x.length).toBeLessThanOrEqual(most);
      const every = Math.ceil(segment.x.length / most);
      thinned.x.forEach((_x, index) => {
        const values = segment.value.slice(index * every, (index + 1) * every);
        const [low, high, mean] = [thinned.low[index] ?? Number.NaN, thinned.high[index] ?? Number.NaN, thinned.value[index] ?? Number.NaN];
        expect(values.every((value) => low <= value && value <= high)).toBe(true);
        expect(close(mean, values.reduce((sum, value) => sum + value, 0) / values.length)).toBe(true);
        expect(low <= mean && mean <= high).toBe(true);
        expect(thinned.count[index]).toBe(values.length);
      });
      expect(thinned.count.reduce((sum, count) => sum + count, 0)).toBe(segment.x.length);
      expect([thinned.x[0], thinned.x.at(-1)]).toEqual([segment.x[0], segment.x.at(-1)]);
    }
  });

  it("has the same means however often it is thinned", () => {
    for (const segment of splitByAttempt(curve)) {
      if (segment.x.length === 0) continue;
      const total = (points: typeof segment) => points.value.reduce((sum, value, index) => sum + value * (points.count[index] ?? 0), 0);
      const once = thinTo(segment, 64);
      expect(close(total(thinTo(once, 7)), total(segment))).toBe(true);
      expect(Math.min(...thinTo(once, 7).low)).toBe(Math.min(...segment.value));
      expect(Math.max(...thinTo(once, 7).high)).toBe(Math.max(...segment.value));
    }
  });

  it("is drawn within its band, with a gap wherever a value was no number", () => {
    const { columns, data, crosses } = pictureOf([line], () => curve, { smoothing: 0, positiveOnly: false, most: 50 });
    const [x] = data;
    expect(x.every((position, index) => index === 0 || position > (x[index - 1] ?? 0))).toBe(true);
    columns.forEach((column, index) => {
      if (column.role !== "low") return;
      data[index + 1]?.forEach((low, at) => {
        if (typeof low !== "number") return;
        expect(low).toBeLessThanOrEqual(data[index + 2]?.[at] as number);
        expect(low).toBeLessThanOrEqual(data[index + 3]?.[at] as number);
        expect(data[index + 3]?.[at] as number).toBeLessThanOrEqual(data[index + 2]?.[at] as number);
      });
    });
    expect(crosses.length > 0).toBe(raw.some(({ value }) => !Number.isFinite(value)));
  });

  it("says the last raw value, along whatever it is drawn", () => {
    const tokens = new StepMap([{ attempt: 1, step: [0, 10_000], value: [0, 5_120_000] }]);
    const along = mapped(curve, tokens);
    expect(along.last?.value).toBe(raw.at(-1)?.value);
    expect(along.last?.x).toBeCloseTo((raw.at(-1)?.step ?? 0) * 512, 3);
    expect(along.value).toEqual(curve.value);
  });

  it("shows in a part of it every point of that part", () => {
    const [first, last] = [curve.x[0] ?? 0, Math.max(...curve.x, 0)];
    const range = { from: first + (last - first) * 0.3, to: first + (last - first) * 0.6 };
    for (const segment of splitByAttempt(curve)) {
      const inside = segment.x.filter((x) => x >= range.from && x <= range.to);
      const cut = cutTo(segment, range).x;
      expect(inside.every((x) => cut.includes(x))).toBe(true);
      expect(cut.length).toBeLessThanOrEqual(inside.length + 2);
    }
  });

  it("is whole in a CSV file: every value, as it was reported", () => {
    const rows = csvOf({ lines: [line] }, () => curve, "step").trim().split("\n").slice(1).map((row) => row.split(","));
    const found = new Map(rows.map(([step, attempt, value]) => [`${attempt}:${step}`, Number(value)]));
    for (const { step, value, attempt } of raw) {
      const read = found.get(`${attempt}:${step}`);
      expect(Number.isFinite(read) ? read : null).toBe(Number.isFinite(value) ? value : null);
    }
  });
});

it("maps steps to time and back, attempt by attempt", () => {
  const clock = StepMap.ofClock([
    { attempt: 1, x: [0, 100], time: [1_000, 1_100] },
    { attempt: 2, x: [60, 120], time: [5_000, 5_120] },
  ]);
  expect([clock.at(50, 1), clock.at(90, 2), clock.at(130, 2)]).toEqual([1_050, 5_060, 5_140]);
  expect(clock.steps({ from: 1_020, to: 1_040 })).toEqual({ from: 20, to: 40 });
  expect(clock.steps({ from: 5_000, to: 5_060 })?.to).toBeGreaterThanOrEqual(90);
});
