import { describe, expect, it } from "vitest";
import type { Catalogue, Machine } from "@/api/types";
import { narrowed, availableMemory } from "./catalogue-card";

const model = (id: string, lora: number) => ({ id, parameters: 1e9, licence: "apache-2.0", context_length: 8_192, chat: true, gated: false, unsloth_id: null, memory: { full: 8 * lora, lora, qlora: lora / 2 } });

const catalogue: Catalogue = {
  setting: "one row",
  families: [
    { name: "Qwen", models: [model("Qwen/Qwen2.5-0.5B-Instruct", 2e9), model("Qwen/Qwen2.5-7B", 20e9)] },
    { name: "Llama", models: [model("meta-llama/Llama-3.1-8B", 22e9)] },
  ],
};

it("lists models that everybody may download before those that need an access request", () => {
  const [qwen, llama] = [model("Qwen/Qwen2.5-7B", 20e9), { ...model("meta-llama/Llama-3.1-8B", 22e9), gated: true }];
  const listed = { ...catalogue, families: [{ name: "Llama", models: [llama] }, { name: "Qwen", models: [qwen] }] };
  expect(narrowed(listed, { text: "", family: "", fits: "", available: null }).map(({ id }) => id)).toEqual([qwen.id, llama.id]);
});

const machine = (gpus: number[], host: number) => ({ name: "box", gpus: gpus.map(() => "GPU"), gpu_memory_bytes: gpus, host_memory_bytes: host }) as unknown as Machine;
const all = { text: "", family: "", fits: "" as const, available: 10e9 };
const ids = (wanted: Partial<Parameters<typeof narrowed>[1]>) => narrowed(catalogue, { ...all, ...wanted }).map(({ id }) => id);

describe("the catalogue", () => {
  it("is searched by every word, in ids, families and licences", () => {
    expect(ids({ text: "qwen instruct" })).toEqual(["Qwen/Qwen2.5-0.5B-Instruct"]);
    expect(ids({ text: "APACHE llama" })).toEqual(["meta-llama/Llama-3.1-8B"]);
  });

  it("is narrowed to a family and to what fits with a method", () => {
    expect(ids({ family: "Qwen" })).toHaveLength(2);
    expect(ids({ fits: "lora" })).toEqual(["Qwen/Qwen2.5-0.5B-Instruct"]);
    expect(ids({ fits: "qlora" })).toEqual(["Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-7B"]);
    expect(ids({ fits: "full" })).toEqual([]);
  });
});

describe("the memory for a model", () => {
  it("is the largest GPU, or the host's memory where there is none", () => {
    expect(availableMemory([machine([24e9, 80e9], 64e9)])).toEqual({ bytes: 80e9, where: "GPU" });
    expect(availableMemory([machine([], 64e9), machine([], 128e9)])).toEqual({ bytes: 128e9, where: "host" });
    expect(availableMemory([])).toBeNull();
  });
});
