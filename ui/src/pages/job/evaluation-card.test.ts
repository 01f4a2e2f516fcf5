import { describe, expect, it } from "vitest";
import { wordDiff } from "./evaluation-card";

const side = (before: string, after: string, without: string) =>
  wordDiff(before, after)
    .filter((piece) => piece.kind !== without)
    .map((piece) => piece.text)
    .join("");

describe("the difference of two texts", () => {
  it("marks what was put in and what was taken out, and leaves the rest", () => {
    expect(wordDiff("the red house stands", "the old red house fell")).toEqual([
      { text: "the ", kind: "same" },
      { text: "old ", kind: "added" },
      { text: "red house ", kind: "same" },
      { text: "stands", kind: "removed" },
      { text: "fell", kind: "added" },
    ]);
  });

  it("is one piece for equal texts, and nothing for empty ones", () => {
    expect(wordDiff("same words", "same words")).toEqual([{ text: "same words", kind: "same" }]);
    expect(wordDiff("", "")).toEqual([]);
  });

  it.each([
    ["", "a b"],
    ["a\n\n b  c", "c b a"],
    ["x ".repeat(2000), "y ".repeat(2000)],
  ])("gives both texts back whole", (before, after) => {
    expect(side(before, after, "added")).toBe(before);
    expect(side(before, after, "removed")).toBe(after);
  });
});
