import { describe, expect, it } from "vitest";
import { sampleAnswer } from "./improvement-card";
import { answerAt, sampleSteps } from "./samples-over-steps";

const samples = [
  { prompt: "a", answers: [{ step: 0, text: "x" }, { step: 20, text: "y" }] },
  { prompt: "b", answers: [{ step: 5, text: "z" }] },
];

describe("samples over steps", () => {
  it("has one timeline for all prompts", () => {
    expect(sampleSteps(samples)).toEqual([0, 5, 20]);
  });

  it("finds the answer of a step, and none where the prompt was not asked", () => {
    expect(samples.map((sample) => answerAt(sample, 20))).toEqual(["y", undefined]);
  });

  it("has the first prompt before training and at its last step for the overview", () => {
    expect(sampleAnswer(samples)).toEqual({ prompt: "a", base: "x", tuned: "y", step: 20 });
    expect(sampleAnswer([{ prompt: "a", answers: [{ step: 0, text: "x" }] }])).toBeNull();
    expect(sampleAnswer([])).toBeNull();
  });
});
