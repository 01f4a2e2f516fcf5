import { expect, it } from "vitest";
import { likeJob } from "./like-job";

const config = { epochs: 3, data: { train_path: "/data/a.jsonl", tokenizer: { kind: "file", path: "/models/m/tokenizer.json" } }, model: { path: "/models/m", preset: null } };

it("starts a job like another one with its config", () => {
  expect(likeJob({ config, datasetId: null, modelId: null })).toEqual({ config, datasetId: undefined, modelId: undefined });
});

it("names what was given by id by its id, and no path beside it", () => {
  const like = likeJob({ config, datasetId: "d1", modelId: "m1" });
  expect(like).toEqual({ config: { epochs: 3, model: { preset: null } }, datasetId: "d1", modelId: "m1" });
});
