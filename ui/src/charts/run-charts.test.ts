import { describe, expect, it } from "vitest";
import { ENGINE_MEMORY, STEP_PARTS } from "./chart-spec";
import { chartSpecsFor } from "./run-charts";
import { bandsOf } from "./plot";

const curves = (names: readonly string[], rank = 0) => names.map((name) => ({ name, rank }));
const titles = (names: string[]) => chartSpecsFor(curves(names)).engine.map((spec) => spec.title);

describe("the charts of the engine", () => {
  it("are there only when the engine speaks", () => {
    expect(titles(["train/loss", "system/gpu/0/power"])).toEqual([]);
  });

  it("draw what a step waits for as one chart, and never a curve twice", () => {
    const names = [...Object.values(STEP_PARTS), ...Object.values(ENGINE_MEMORY), "engine/tflops", "engine/mfu", "engine/link_in_gb_per_second"];
    expect(titles(names)).toEqual(["Step time by activity", "Host–GPU transfer speed", "TFLOP/s", "MFU (share of GPU peak)", "Memory used"]);
    expect(chartSpecsFor(curves(names)).training).toEqual([]);
  });

  it("tint the area between a line and the one below it", () => {
    const [step] = chartSpecsFor(curves(Object.values(STEP_PARTS))).engine;
    const columns = (step?.lines ?? []).map((line) => ({ line, role: "main" as const, attempt: 1, repeated: false }));
    expect(bandsOf(columns).map((band) => band.series)).toEqual([[2, 1], [3, 2]]);
  });
});

it("the margin of the eval loss is no chart", () => {
  const { training } = chartSpecsFor(curves(["eval/loss", "eval/loss_change", "eval/loss_change_margin"]));
  expect(training.flatMap(({ lines }) => lines.map(({ name }) => name))).toEqual(["eval/loss"]);
});

describe("the charts of several ranks and machines", () => {
  it("draw a line for every rank that reports a metric", () => {
    const [step] = chartSpecsFor([...curves(["train/step_seconds"]), ...curves(["train/step_seconds"], 2), ...curves(["train/step_seconds"], 1)]).training;
    expect(step?.lines.map(({ name, label }) => [name, label])).toEqual([["train/step_seconds", "rank 0"], ["train/step_seconds @1", "rank 1"], ["train/step_seconds @2", "rank 2"]]);
    expect(new Set(step?.lines.map(({ colour }) => colour)).size).toBe(3);
  });

  it("show disk and network, every GPU of every machine, and what nobody knows yet", () => {
    const measured = ["system/gpu/1/power", "system/gpu/0/power", "system/gpu/0/memory_total", "system/disk/read", "system/disk/written", "system/network/sent", "system/tpu/heat"];
    const { system } = chartSpecsFor([...curves(measured), ...curves(["system/disk/read"], 4)], { 0: "alpha", 4: "beta" });
    expect(system.map(({ title, lines }) => [title, lines.map(({ label }) => label)])).toEqual([
      ["GPU power", ["GPU 0 · alpha", "GPU 1 · alpha"]],
      ["Disk throughput", ["read · alpha", "read · beta", "written · alpha"]],
      ["Network throughput", ["sent · alpha"]],
      ["tpu/heat", ["alpha"]],
    ]);
  });
});
