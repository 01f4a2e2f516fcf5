import type { Job } from "@/api/types";
import { describe, expect, it } from "vitest";
import type { Curve, Curves, Outcome } from "@/api/types";
import { comparedChartSpecs, comparedSeries, figuresOf, labelsOf, valueNear } from "./compared";
import { allFields, pathText, valueText } from "./side-tables";

const curve = (name: string, x: number[], value: number[]): Curve => ({ name, rank: 0, axis: "step", x, value, low: value, high: value, attempt: x.map(() => 1), last: null });
const curves = (...series: Curve[]): Curves => ({ position: 0, series });
const outcome = (final: Record<string, number>): Outcome => ({ job_id: "", final, best_eval_loss: null, best_step: null, steps: 10, tokens: null, tokens_per_second: null, seconds: null, facts: {} });

describe("curves of several runs", () => {
  const both = [curves(curve("train/loss", [10, 20], [3, 2]), curve("train/tokens_seen", [10, 20], [1000, 2000])), curves(curve("train/loss", [10], [4]))];

  it("keep their run apart, and share a chart", () => {
    const [loss] = comparedChartSpecs(["a", "b"], both, "step");
    expect(loss?.lines.map((line) => line.label)).toEqual(["a", "b"]);
    expect(new Set(loss?.lines.map((line) => line.colour)).size).toBe(2);
    const names = comparedSeries(both, "step").map((one) => one.name);
    expect(loss?.lines.every((line) => names.includes(line.name))).toBe(true);
  });

  it("lie along tokens where the run counted them, and are left out where it did not", () => {
    const series = comparedSeries(both, "tokens");
    expect(series.find((one) => one.name === "0:train/loss")?.x).toEqual([1000, 2000]);
    expect(series.some((one) => one.name.startsWith("1:"))).toBe(false);
  });

  it("have charts only for what a run reports", () => {
    expect(comparedChartSpecs(["a", "b"], both, "step").map((spec) => spec.title)).toEqual(["Loss"]);
  });
});

it("reads a growing curve between and beyond its points", () => {
  const seen = { x: [10, 20], value: [100, 300] };
  expect([5, 10, 15, 20, 25].map((step) => valueNear(seen, step))).toEqual([50, 100, 200, 300, 400]);
});

it("tells runs with one name apart", () => {
  expect(labelsOf([{ name: "a" }, { name: "b" }, { name: "a" }])).toEqual(["a (1)", "b", "a (3)"]);
});

describe("figures", () => {
  const figures = figuresOf([outcome({ "train/loss": 2, "eval/accuracy": 0.4 }), outcome({ "train/loss": 1.5, "eval/accuracy": 0.6 }), outcome({ "train/loss": 1.5 })]);
  const best = (name: string) => figures.find((figure) => figure.name === name)?.best;

  it("mark the best where one stands out, in the direction that is better", () => {
    expect(best("Final eval accuracy")).toBe(1);
    expect(best("Final loss")).toBeNull();
    expect(best("Steps")).toBeNull();
  });

  it("leave out what no run has", () => {
    expect(figures.some((figure) => figure.name === "Time taken")).toBe(false);
  });
});

it("lists every field of configs that differ in shape", () => {
  expect(allFields([{ config: { a: 1, lora: { rank: 8 } } }, { config: { a: 2, data: { packing: true } } }] as unknown as Job[])).toEqual([
    { path: "a", values: [1, 2] },
    { path: "lora.rank", values: [8, null] },
    { path: "data.packing", values: [null, true] },
  ]);
  expect([pathText("lora.target_modules"), valueText([]), valueText(null), valueText(false)]).toEqual(["lora › target modules", "none", "–", "no"]);
});
