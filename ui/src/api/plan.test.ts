import { describe, expect, it } from "vitest";
import { memoriesOf } from "./plan";
import type { Plan } from "./types";

const memory = { weights: 4, gradients: 3, optimizer: 2, activations: 1, overhead: 0, limit_bytes: 100 };
const plan = { device: "cuda", memory, memory_limit_bytes: 100 } as Plan;

describe("the memories of a plan", () => {
  it("are a GPU's and the host's", () => {
    const found = memoriesOf({ ...plan, host: { ...memory, weights: 90, limit_bytes: 200 } });
    expect(found.map(({ name, total, limit }) => [name, total, limit])).toEqual([
      ["GPU", 10, 100],
      ["Host", 96, 200],
    ]);
  });

  it("are the host's alone on a CPU", () => {
    expect(memoriesOf({ ...plan, device: "cpu", host: memory }).map(({ name }) => name)).toEqual(["Host"]);
  });
});
