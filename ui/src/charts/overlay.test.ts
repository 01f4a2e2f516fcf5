import { describe, expect, it } from "vitest";
import { CurveStore } from "./curve-store";
import { overlayOf } from "./overlay";
import { type CurvePoints, pictureOf } from "./plot-data";

const curve = (points: [x: number, value: number, attempt?: number][]): CurvePoints => {
  const value = points.map((point) => point[1]);
  return { name: "eval/loss", rank: 0, axis: "step", x: points.map(([x]) => x), value, low: value, high: value, attempt: points.map((point) => point[2] ?? 1), last: null };
};
const run = (id: string, group: string, points: [number, number, number?][], failed = false) => ({ id, label: id, group, failed, curve: curve(points) });

describe("several runs in one chart", () => {
  it("are a mean and a band from the lowest to the highest for each group", () => {
    const { series, lines } = overlayOf([run("a", "lr 1e-4", [[0, 2], [10, 1]]), run("b", "lr 1e-4", [[0, 4], [10, 3]]), run("c", "lr 3e-4", [[0, 5], [10, 4]])]);
    expect(lines.map(({ label }) => label)).toEqual(["lr 1e-4 (2 runs)", "c"]);
    expect(series[0]).toMatchObject({ x: [0, 10], value: [3, 2], low: [2, 1], high: [4, 3] });
    expect(new Set(lines.map(({ colour }) => colour)).size).toBe(2);
  });

  it("meet between their own points where they report at different steps", () => {
    const { series } = overlayOf([run("a", "g", [[0, 0], [10, 10]]), run("b", "g", [[0, 0], [5, 9], [10, 0]])]);
    expect(series[0]).toMatchObject({ x: [0, 5, 10], value: [0, 7, 5], low: [0, 5, 0], high: [0, 9, 10] });
  });

  it("leave a failed run out of the mean: dashed, with a cross at its end, in the colour of its group", () => {
    const { series, lines } = overlayOf([run("a", "g", [[0, 2], [10, 2]]), run("b", "g", [[0, 8], [4, 9]], true)]);
    expect(series[0]?.value).toEqual([2, 2]);
    expect(lines[1]).toMatchObject({ label: "b (failed)", failed: true, colour: lines[0]?.colour });
    const store = new CurveStore();
    store.load({ position: 0, series });
    const { crosses } = pictureOf(lines, (name) => store.curve(name), { smoothing: 0, positiveOnly: false });
    expect(crosses.map(({ x, y }) => [x, y])).toEqual([[4, 9]]);
  });

  it("count of steps that were done twice only what the last attempt did", () => {
    const { series } = overlayOf([run("a", "g", [[0, 1], [10, 9], [5, 2, 2], [10, 2, 2]]), run("b", "g", [[0, 1], [5, 2], [10, 2]])]);
    expect(series[0]).toMatchObject({ x: [0, 5, 10], value: [1, 2, 2], high: [1, 2, 2] });
  });

  it("keep the colour of a group when another one comes before it", () => {
    const first = overlayOf([{ ...run("a", "g", [[0, 1]]), colour: 3 }]).lines[0]?.colour;
    const { lines } = overlayOf([{ ...run("b", "h", [[0, 1]]), colour: 0 }, { ...run("a", "g", [[0, 1]]), colour: 3 }]);
    expect(lines[1]?.colour).toBe(first);
  });
});
