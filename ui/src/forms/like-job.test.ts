import { expect, it } from "vitest";
import { likeJob } from "./like-job";

const config = { epochs: 3, data: { train_path: "/data/a.jsonl", tokenizer: { kind: "file", path: "/models/m/tokenizer.json" } }, model: { path: "/models/m", preset: null } };

const given = { requestedConfig: config, datasetId: null, modelId: null, gpuType: null, hostMemory: null };

it("starts a job like another one with what was set for it", () => {
  expect(likeJob(given)).toEqual({ config });
  expect(likeJob({ ...given, requestedConfig: { memory: "stream" }, gpuType: "H200", hostMemory: 512 })).toEqual({ config: { memory: { mode: "stream" } }, gpuType: "H200", hostMemory: 512 });
});

it("names what was given by id by its id, and no path beside it", () => {
  const like = likeJob({ ...given, datasetId: "d1", modelId: "m1" });
  expect(like).toEqual({ config: { epochs: 3, model: { preset: null } }, datasetId: "d1", modelId: "m1" });
});
