import { expect, it } from "vitest";
import type { Job } from "@/api/types";
import { isTuning, optimizationsOf, tuningFacts } from "./tuning-card";

const tuned = {
  model_name: "tiny",
  dataset_name: "herons.jsonl",
  mix: [],
  config: { method: "lora", backend: "engine", lora: { rank: 16, alpha: 32 }, model: { path: "/models/x" }, data: { kind: "examples", packing: true } },
  summary: { facts: { optimizations: "chunked loss; compiled layers" }, values: { "train/tokens_seen": { value: 4000 }, "train/trained_tokens": { value: 1000 } } },
} as unknown as Job;

it("says what is tuned, on what, and how much of it is taught", () => {
  expect(Object.fromEntries(tuningFacts(tuned))).toEqual({
    "Base model": "tiny",
    Dataset: "herons.jsonl",
    Method: "LoRA, rank 16, alpha 32",
    "Share of trained tokens": "25.0 %",
    "Tokens seen": "4,000",
  });
});

it("names every dataset of a mix with its weight", () => {
  const mixed = { ...tuned, mix: [{ dataset_id: "d2", name: "identity", weight: 5 }] };
  expect(Object.fromEntries(tuningFacts(mixed)).Datasets).toBe("herons.jsonl (weight 1), identity (weight 5)");
});

it("lists what the run says is in force, and packing where it was chosen", () => {
  expect(optimizationsOf(tuned)).toEqual(["packing", "chunked loss", "compiled layers"]);
  expect(optimizationsOf({ ...tuned, config: { data: { kind: "text" } }, summary: { facts: {} } } as unknown as Job)).toEqual([]);
});

it("keeps silent about a model that is trained from nothing", () => {
  expect(isTuning({ config: { model: { preset: "tiny", path: null }, data: { kind: "text" } } as Job["config"] })).toBe(false);
  expect(isTuning(tuned)).toBe(true);
});
