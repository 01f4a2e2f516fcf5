import { describe, expect, it } from "vitest";
import type { Plan, RunSummary } from "@/api/types";
import { effectiveConfig } from "./config-card";
import { differenceText, predictionsOf } from "./memory-card";

const memory = { weights: 60, gradients: 0, optimizer: 0, activations: 40, overhead: 0, limit_bytes: 200 };

function rows(given: { plan?: object; summary?: object; speed?: number }) {
  const plan = {
    device: "cuda",
    memory,
    memory_total_bytes: 100,
    memory_limit_bytes: 200,
    gpu_reserved_bytes: 95,
    host: { ...memory, weights: 110 },
    tokens_per_step: 1000,
    tokens_per_second: 500,
    step_seconds: 2,
    ...given.plan,
  } as Plan;
  const result = predictionsOf(plan, { facts: {}, values: {}, system: {}, ...given.summary } as RunSummary, given.speed ?? null);
  return Object.fromEntries(result.map((row) => [row.name, [row.planned, row.measured]]));
}

const reported = (values: Record<string, number>) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]));

describe("planned and measured values", () => {
  it("compares the engine's own figures", () => {
    const summary = { values: reported({ "engine/gpu_reserved_bytes": 97, "engine/host_bytes": 140 }), system: { "gpu/0/memory_used": 120, "process/ram": 130 } };
    expect(rows({ summary, speed: 400 })).toEqual({ "GPU memory": [95, 97], "Host memory": [150, 140], "Step time": [2, 2.5], "Tokens per second": [500, 400] });
  });

  it("takes the plan that the run made where it happens", () => {
    const facts = { planned_gpu_bytes: 90, planned_host_bytes: 120, planned_step_seconds: 4, tokens_per_step: 1000 };
    const summary = { facts, values: reported({ "engine/gpu_reserved_bytes": 97 }) };
    expect(rows({ summary, speed: 200 })).toEqual({ "GPU memory": [90, 97], "Host memory": [120, null], "Step time": [4, 5], "Tokens per second": [250, 200] });
  });

  it("compares the whole card where the engine says nothing", () => {
    expect(rows({ summary: { system: { "gpu/0/memory_used": 104 } } })["GPU memory"]).toEqual([100, 104]);
  });

  it("knows one memory on a CPU", () => {
    const result = rows({ plan: { device: "cpu", gpu_reserved_bytes: null }, summary: { system: { "process/ram": 98 } } });
    expect(result).toMatchObject({ "Host memory": [100, 98], "Step time": [2, null] });
    expect(result["GPU memory"]).toBeUndefined();
  });

  it.each([
    [100, 103, "+3 %"],
    [100, 91, "−9 %"],
    [100, 100.4, "as planned"],
    [100, null, ""],
    [0, 5, ""],
  ])("%s planned and %s measured is written “%s”", (planned, measured, text) => expect(differenceText({ name: "", planned, measured, text: String })).toBe(text));
});

describe("a config in groups", () => {
  it("leaves out what does not apply", () => {
    const config = { method: "full", lora: { rank: 16 }, model: { preset: "tiny", path: null, random_weights: false, layers: null } };
    expect(effectiveConfig(config)).toEqual({ method: "full", model: { preset: "tiny", layers: null } });
    expect(effectiveConfig({ ...config, method: "lora", model: { preset: "tiny", path: "/x", random_weights: false } })).toEqual({
      method: "lora",
      lora: { rank: 16 },
      model: { path: "/x", random_weights: false },
    });
  });
});
