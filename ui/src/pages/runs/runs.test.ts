import { describe, expect, it } from "vitest";
import type { Overlay, RunList, RunRow } from "@/api/types";
import { runsOfJobs, runsSearch } from "@/shell/address";
import { overlayCurves, overlayLines } from "./compare-panel";
import { shownColumns } from "./run-table";
import { cellText, cutNames, filterTokens, isQuiet, isSeed, kindOf, shortNames, spreadText, titleOf } from "./run-words";

const list = (change: Partial<RunList>): RunList => ({ total: 1, matched: 1, rows: 1, columns: [], sections: [], sources: [], statuses: {}, config_columns: [], metric_columns: [], ...change });

describe("columns of the run list", () => {
  it("stand in the order config, metrics, run, whatever the order of the answer", () => {
    const columns = shownColumns(list({ columns: ["time", "eval/loss.min", "lora.rank"], metric_columns: ["eval/loss"] }));
    expect(columns.map(({ name, kind, title }) => [name, kind, title])).toEqual([
      ["lora.rank", "config", "Rank"],
      ["eval/loss.min", "metric", "Best eval loss"],
      ["time", "run", "Time"],
    ]);
  });

  it("are named by what they show", () => {
    expect(titleOf("acc.max", kindOf("acc.max", new Set(["acc"])))).toBe("acc highest");
    expect(titleOf("data.max_length", "config")).toBe("max length");
  });

  it("write numbers as their unit asks", () => {
    expect(cellText("time", 8040, "run")).toBe("2 h 14 m");
    expect(cellText("learning_rate", 2e-4, "config")).toBe("2e-4");
    expect(cellText("eval/loss", "NaN", "metric")).toBe("NaN");
    expect(cellText("cost", null, "run")).toBe("–");
    expect(spreadText(0.014142)).toBe("0.014");
  });
});

describe("names in a legend", () => {
  it("leave out the words with which all begin, but for the last of them", () => {
    expect(shortNames([{ name: "gemma LoRA, lr 2e-4" }, { name: "gemma LoRA, lr 1e-4" }])).toEqual(["lr 2e-4", "lr 1e-4"]);
  });

  it("stay whole where they have nothing in common, and are numbered where they are the same", () => {
    expect(shortNames([{ name: "one run" }, { name: "two" }])).toEqual(["one run", "two"]);
    expect(shortNames([{ name: "gpt" }, { name: "gpt" }])).toEqual(["gpt (1)", "gpt (2)"]);
  });
});

describe("names above a column", () => {
  it("stay whole where there is room", () => {
    expect(cutNames(["nano, shakespeare", "nano, poems"], 24)).toEqual(["nano, shakespeare", "nano, poems"]);
  });

  it("lose their end where their start tells them apart, otherwise what comes before the difference", () => {
    expect(cutNames(["one-name-that-does-not-end-soon", "two"], 24)).toEqual(["one-name-that-does-not-…", "two"]);
    const names = cutNames(["gpt2-nano-shakespeare-learning-rate-1e-3-warm-restarts", "gpt2-nano-shakespeare-learning-rate-2e-3-warm-restarts"], 24);
    expect(names).toEqual(["gpt2-na…e-1e-3-warm-res…", "gpt2-na…e-2e-3-warm-res…"]);
  });

  it("keep the end of one that others go on from", () => {
    const names = cutNames(["gpt2-nano-shakespeare-learning-rate", "gpt2-nano-shakespeare-learning-rate-2"], 24);
    expect(new Set(names).size).toBe(2);
    expect(names.every((name) => name.length <= 24)).toBe(true);
  });
});

describe("the filter", () => {
  it("has colours for columns, words and values, and loses no character", () => {
    const text = 'lr >= 1e-4 and status in (failed, "x y")';
    const tokens = filterTokens(text);
    expect(tokens.map((token) => token.text).join("")).toBe(text);
    expect(tokens.filter(({ kind }) => kind === "field").map((token) => token.text)).toContain("lr");
    expect(tokens.find((token) => token.text === "1e-4")?.kind).toBe("value");
    expect(tokens.find((token) => token.text === "and")?.kind).toBe("word");
  });

  it("keeps what the address says, also numbers and the empty grouping", () => {
    expect(runsSearch({ query: 7, group: "", view: 3 })).toMatchObject({ query: "7", group: "", view: undefined });
  });

  it("takes over what the list of jobs was asked for", () => {
    expect(runsOfJobs({ status: "failed", search: "a b" }).query).toBe('"a b" and status = failed');
    expect(runsOfJobs({})).toEqual({ query: undefined });
  });
});

describe("an overlay", () => {
  const overlay: Overlay = {
    series: "loss",
    groups: [
      { runs: 2, x: [1, 2], mean: [3, 2], low: [2, 1], high: [4, 3], deviation: [1, 1], failed: [{ run_id: "b", name: "seed 2", x: [1], y: [9] }] },
      { runs: 0, x: [], mean: [], low: [], high: [], deviation: [], failed: [] },
    ],
  };

  it("has a line for each group with values and one for each run that did not complete, in the colour of its group", () => {
    const lines = overlayLines(["a", "b"], overlay);
    expect(lines.map(({ label }) => label)).toEqual(["a", "seed 2, not completed"]);
    expect(new Set(lines.map(({ colour }) => colour)).size).toBe(1);
  });

  it("shows every evaluation as it is, and smooths what a run reports at every step", () => {
    const lines = ["eval/loss", "train/loss"].map((series) => overlayLines(["a", "b"], { ...overlay, series }));
    expect(lines.map((drawn) => drawn.map(({ dots }) => dots))).toEqual([[true, true], [false, false]]);
  });

  it("draws the mean between the lowest and the highest run, and keeps the last value", () => {
    const [mean] = overlayCurves(overlay);
    expect(mean).toMatchObject({ x: [1, 2], value: [3, 2], low: [2, 1], high: [4, 3], last: { x: 2, value: 2 } });
  });
});

it("knows seeds by their names", () => {
  expect(["seed", "data.seed", "random_seed", "seeds", "seed.x"].map(isSeed)).toEqual([true, true, true, false, false]);
});

it("calls a sent run quiet that has not been heard from", () => {
  const row: Pick<RunRow, "kind" | "status" | "seen"> = { kind: "run", status: "running", seen: 1000 };
  expect(isQuiet(row, 1100)).toBe(false);
  expect(isQuiet(row, 2000)).toBe(true);
  expect(isQuiet({ ...row, kind: "train" }, 2000)).toBe(false);
});
