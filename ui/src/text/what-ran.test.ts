import { describe, expect, it } from "vitest";
import { isEmpty, whatRanFacts, whatRanTexts } from "@/text/what-ran";

const ran = {
  command: ["python", "train.py", "--lr", "1e-3"],
  folder: "~/work",
  git: { commit: "a".repeat(40), branch: "main", changed: true, untracked: ["new.py"], diff: "+lr = 2" },
  machine: { host: "box", python: "3.11.7", cuda: "12.8", cpus: 1, ram_bytes: 16e9 },
  packages: { torch: "2.8.0" },
  configs: { TrainingArguments: { learning_rate: 1e-3 } },
  datasets: [{ name: "train", fingerprint: `sha256:${"b".repeat(64)}`, rows: 1200 }],
};

describe("what ran", () => {
  it("is a list of short facts", () => {
    const facts = Object.fromEntries(whatRanFacts(ran));
    expect(facts["Commit"]).toBe("aaaaaaaaaaaa on main, with changes");
    expect(facts["Python"]).toBe("3.11.7, CUDA 12.8");
    expect(facts["Dataset train"]).toBe(`1,200 rows, sha256:${"b".repeat(12)}…`);
    expect(facts["Remote"]).toBeUndefined();
  });

  it("keeps configs, changes and packages whole", () => {
    expect(whatRanTexts(ran).map(([title]) => title)).toEqual(["Config: TrainingArguments", "Changes since the commit", "Packages (1)"]);
    expect(whatRanTexts(ran)[2]?.[1]).toBe("torch==2.8.0");
  });

  it("knows when nothing was recorded", () => {
    expect(isEmpty({ command: [], machine: {}, packages: {}, configs: {}, datasets: [], git: null })).toBe(true);
    expect(isEmpty(undefined)).toBe(true);
    expect(isEmpty(ran)).toBe(false);
  });
});
