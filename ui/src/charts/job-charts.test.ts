import { describe, expect, it } from "vitest";
import { ENGINE_MEMORY, STEP_PARTS } from "./chart-spec";
import { chartSpecsFor } from "./job-charts";
import { bandsOf } from "./plot";

const titles = (names: string[]) => chartSpecsFor(names).engine.map((spec) => spec.title);

describe("the charts of the engine", () => {
  it("are there only when the engine speaks", () => {
    expect(titles(["train/loss", "system/gpu/0/power"])).toEqual([]);
  });

  it("draw what a step waits for as one chart, and never a curve twice", () => {
    const names = [...Object.values(STEP_PARTS), ...Object.values(ENGINE_MEMORY), "engine/tflops", "engine/mfu", "engine/link_in_gb_per_second"];
    expect(titles(names)).toEqual(["Step time by activity", "Host–GPU transfer speed", "TFLOP/s", "MFU (share of GPU peak)", "Memory used"]);
    expect(chartSpecsFor(names).training).toEqual([]);
  });

  it("tint the area between a line and the one below it", () => {
    const [step] = chartSpecsFor(Object.values(STEP_PARTS)).engine;
    const columns = (step?.lines ?? []).map((line) => ({ line, role: "main" as const, attempt: 1, repeated: false }));
    expect(bandsOf(columns).map((band) => band.series)).toEqual([[2, 1], [3, 2]]);
  });
});
