// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { fileMistake, folderMistake, readFolder } from "./chosen-files";

describe("a file of examples", () => {
  it.each(["chats.jsonl", "CHATS.JSONL", "a.json", "a.csv", "a.tsv", "a.txt", "a.parquet", "a.jsonl.gz", "A.CSV.ZST", "a.zip", "../../a.csv", "日本語.jsonl"])("may be %s", (name) => {
    expect(fileMistake({ name, size: 1 })).toBeNull();
  });

  it("says what it may be instead", () => {
    expect(fileMistake({ name: "photo.png", size: 1 })).toContain(".jsonl, .json, .csv, .tsv, .txt, .parquet, .gz, .zst or .zip");
    expect(fileMistake({ name: "chats.gz", size: 1 })).toContain("is not a supported dataset file");
    expect(fileMistake({ name: "chats.jsonl", size: 0 })).toContain("is empty");
  });
});

function folder(files: Record<string, number>) {
  return readFolder(
    Object.entries(files).map(([path, size]) => {
      const file = new File(["x".repeat(size)], path.split("/").at(-1) ?? "");
      Object.defineProperty(file, "webkitRelativePath", { value: `my-model/${path}` });
      return file;
    }),
  );
}

const complete = { "config.json": 3, "model.safetensors": 10, "tokenizer.json": 5 };

describe("a model's folder", () => {
  it("is sent without the folder's own name, and without what a model does not need", () => {
    const read = folder({ ...complete, "pytorch_model.bin": 9, ".git/config": 1, "onnx/model.json": 4, "modeling_custom.py": 2, "empty.json": 0 });
    expect(read.name).toBe("my-model");
    expect(read.files.map(({ path }) => path)).toEqual(["config.json", "model.safetensors", "tokenizer.json"]);
    expect(read.leftOut).toEqual(["pytorch_model.bin", ".git/config", "onnx/model.json", "modeling_custom.py", "empty.json"]);
    expect(read.size).toBe(18);
    expect(folderMistake(read)).toBeNull();
  });

  it("says what is missing before anything is sent", () => {
    expect(folderMistake(folder({}))).toContain("empty");
    expect(folderMistake(folder({ "inner/config.json": 1, "inner/model.safetensors": 1 }))).toContain("no config.json");
    expect(folderMistake(folder({ "config.json": 1, "pytorch_model.bin": 1 }))).toContain(".safetensors");
  });
});
