import { describe, expect, it } from "vitest";
import type { Dataset, Model, Plan, PlanAnswer, PlanRequest } from "@/api/types";
import type { ConfigValues } from "@/forms/job-fields";
import { configOf, newJobBody, startingValues, valuesOf, withValue } from "@/forms/job-form";
import { hubDatasetId, hubModelId } from "@/forms/rules";
import { costText, FINETUNE_CONFIG, finetuneRules, whatIsMissing, withMethod } from "./finetune-rules";

const begin = (given: { dataset_id?: string; model_id?: string } = {}) => startingValues("p1", { config: FINETUNE_CONFIG, ...given });

const messages = (given: object) => finetuneRules.safeParse({ ...begin(), ...given }).error?.issues.map((issue) => issue.message) ?? [];

const changed = (change: Record<string, string>) =>
  configOf(
    Object.entries(change).reduce((values, [path, value]) => withValue(values, path, value) as ConfigValues, valuesOf(FINETUNE_CONFIG)),
    FINETUNE_CONFIG,
  );

describe("the form for fine-tuning", () => {
  it("begins with LoRA, and says nothing that the server knows better", () => {
    expect(changed({})).toEqual({ method: "lora" });
  });

  it("sends the settings of examples, adapters and backend where they differ", () => {
    expect(changed({ "data.packing": "false", "data.train_on": "everything", "data.eval_fraction": "0.1", "lora.dropout": "0.05", backend: "trl" })).toEqual({
      method: "lora",
      data: { packing: false, train_on: "everything", eval_fraction: 0.1 },
      lora: { dropout: 0.05 },
      backend: "trl",
    });
  });

  it("keeps no adapters in a full training", () => {
    expect(changed({ method: "full", "lora.rank": "8" })).not.toHaveProperty("lora");
  });

  it("names model and data by their ids, never by paths", () => {
    const body = newJobBody(begin({ dataset_id: "d1", model_id: "m1" }), changed({}), 5e8);
    expect(body).toMatchObject({ dataset_id: "d1", model_id: "m1", project_id: "p1" });
    expect(JSON.stringify(body)).not.toContain("path");
  });

  it("sends more datasets with the weights that were typed", () => {
    const mix = [
      { dataset_id: "d2", weight: "" },
      { dataset_id: "d3", weight: "0.5" },
    ];
    expect(newJobBody({ ...begin({ dataset_id: "d1", model_id: "m1" }), mix }, changed({}), null)).toMatchObject({ dataset_id: "d1", mix: [{ dataset_id: "d2" }, { dataset_id: "d3", weight: 0.5 }] });
    expect(messages({ model_id: "m1", dataset_id: "d1", mix: [{ dataset_id: "d1", weight: "0" }] })).toEqual([expect.stringContaining("chosen twice"), expect.stringContaining("0")]);
  });

  it("asks for a model that is here, and for data", () => {
    expect(messages({})).toEqual(["Choose a model.", "Choose a dataset."]);
    expect(messages({ model_id: "hub:Qwen/Qwen2.5-0.5B", dataset_id: "d1" })).toEqual(["Download this model first."]);
    expect(messages({ model_id: "m1", dataset_id: "d1" })).toEqual([]);
  });
});

const model = (status: string) => ({ status }) as Model;
const dataset = (status: string, mapping: object | null = {}) => ({ status, report: { mapping } }) as unknown as Dataset;

describe("what is missing before there can be a plan", () => {
  const chosen = { model_id: "m1", dataset_id: "d1", mix: [] };

  it("is said one thing at a time", () => {
    expect(whatIsMissing({ ...chosen, model_id: "", dataset_id: "" }, {})).toBe("Choose a model.");
    expect(whatIsMissing({ ...chosen, model_id: "hub:a/b" }, {})).toBe("Download the model.");
    expect(whatIsMissing(chosen, { dataset: dataset("ready"), gone: "model" })).toBe("Choose another model: this model no longer exists.");
    expect(whatIsMissing(chosen, { model: model("fetching"), dataset: dataset("ready") })).toBe("Wait until the model is ready.");
    expect(whatIsMissing(chosen, { model: model("ready"), dataset: dataset("inspecting") })).toBe("Wait until the dataset is ready.");
    expect(whatIsMissing(chosen, { model: model("ready"), dataset: dataset("ready", null) })).toContain("Assign the columns");
    expect(whatIsMissing({ ...chosen, mix: [{ dataset_id: "", weight: "" }] }, { model: model("ready"), dataset: dataset("ready") })).toBe("Choose the dataset to mix in.");
    expect(whatIsMissing(chosen, { model: model("ready"), dataset: dataset("ready"), mixed: [dataset("inspecting")] })).toBe("Wait until the dataset to mix in is ready.");
    expect(whatIsMissing(chosen, { model: model("ready"), dataset: dataset("ready"), held: dataset("failed") })).toContain("Choose another validation dataset");
    expect(whatIsMissing(chosen, { model: model("ready"), dataset: dataset("ready") })).toBeNull();
  });
});

describe("the cost of a method", () => {
  const request: PlanRequest = { config: { method: "lora", lora: { rank: 8 }, epochs: 3 }, model_id: "m1" };

  it("is asked for with everything else as it is", () => {
    expect(withMethod(request, "qlora")).toEqual({ config: { method: "qlora", lora: { rank: 8 }, epochs: 3 }, model_id: "m1" });
    expect(withMethod(request, "full")).toEqual({ config: { method: "full", epochs: 3 }, model_id: "m1" });
  });

  it("is the memory it needs, or that it does not fit", () => {
    const memory = { weights: 30e9, gradients: 0, optimizer: 1e9, activations: 1e9, overhead: 1e9 };
    const plan = { device: "cuda", memory, memory_total_bytes: 33e9, memory_limit_bytes: 80e9 } as Plan;
    const answer = { fits: true, code: null, reason: null, plan, machine: "box", needs: null, options: [], requested_machine: null, defaults: null } satisfies PlanAnswer;
    expect(costText(answer)).toBe("33 GB");
    expect(costText({ ...answer, fits: false, plan: null, needs: { gpu: null, host: plan.memory } })).toBe("does not fit");
    expect(costText({ ...answer, fits: false, plan: null })).toBeNull();
    expect(costText(undefined)).toBeNull();
  });
});

describe("ids of a hub", () => {
  it("are taken from the address of a page, too", () => {
    expect(hubModelId.parse(" https://hub.example/Qwen/Qwen2.5-0.5B/tree/main ")).toBe("Qwen/Qwen2.5-0.5B");
    expect(hubDatasetId.parse("https://hub.example/datasets/tatsu-lab/alpaca/")).toBe("tatsu-lab/alpaca");
    expect(hubDatasetId.parse("squad")).toBe("squad");
  });

  it("have an owner, if they are models", () => {
    expect(hubModelId.safeParse("gpt2").success).toBe(false);
    expect(hubModelId.safeParse("../../etc/passwd").success).toBe(false);
  });
});
