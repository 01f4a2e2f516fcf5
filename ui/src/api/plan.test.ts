import { describe, expect, it } from "vitest";
import { readPlan } from "./plan";

const memory = { weights: 4, gradients: 3, optimizer: 2, activations: 1, overhead: 0, limit_bytes: 100 };
const plan = { device: "cuda", precision: "bf16", memory, memory_total_bytes: 10, memory_limit_bytes: 100 };

describe("a plan", () => {
  it("has a GPU's memory and the host's", () => {
    const parsed = readPlan({ ...plan, host: { ...memory, weights: 90, limit_bytes: 200 } });
    expect(parsed?.memories.map(({ name, total, limit }) => [name, total, limit])).toEqual([
      ["GPU", 10, 100],
      ["Host", 96, 200],
    ]);
  });

  it("has the host's alone on a CPU", () => {
    expect(readPlan({ ...plan, device: "cpu", host: memory })?.memories.map(({ name }) => name)).toEqual(["Host"]);
  });

  it("can be of a version that knew neither phases nor the host", () => {
    const { limit_bytes: _, ...old } = memory;
    expect(readPlan({ ...plan, memory: old, placement: "resident" })).toMatchObject({ memories: [{ name: "GPU", total: 10, limit: 100 }], phases: [], limitedBy: null, stepSeconds: null });
  });

  it("is nothing where it cannot be understood", () => {
    expect(readPlan({})).toBeNull();
    expect(readPlan(null)).toBeNull();
  });
});
