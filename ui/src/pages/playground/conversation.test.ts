// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import { readPiece } from "@/api/playground";
import { type Turn, changed, isWriting, questionFor, loadTurns, saveTurns, tokensPerSecond } from "./conversation";
import { STARTING, mistakesIn, sampledBy } from "./sampling";

const answer = (text: string) => ({ text, state: "done" as const, cut: false, tokens: 3, seconds: 1, problem: null });
const turn = (prompt: string, answers: Record<string, string>): Turn => ({ mode: "chat", prompt, answers: Object.fromEntries(Object.entries(answers).map(([model, text]) => [model, answer(text)])) });

describe("a conversation", () => {
  it("gives each model its own memory", () => {
    const turns = [turn("Hello?", { base: "Hm.", tuned: "Good day." }), turn("And now?", { base: "", tuned: "" })];
    expect(questionFor(turns, 1, "tuned", "Be kind.")).toEqual({
      messages: [
        { role: "system", content: "Be kind." },
        { role: "user", content: "Hello?" },
        { role: "assistant", content: "Good day." },
        { role: "user", content: "And now?" },
      ],
    });
  });

  it("leaves out what a model did not answer, so that speakers keep taking turns", () => {
    const turns = [turn("One", { tuned: "1" }), turn("Two", { base: "", tuned: "" })];
    expect(questionFor(turns, 1, "base", "")).toEqual({ messages: [{ role: "user", content: "Two" }] });
  });

  it("continues a text as it is, without what was said before", () => {
    const turns: Turn[] = [turn("One", { tuned: "1" }), { mode: "complete", prompt: "Once upon", answers: {} }];
    expect(questionFor(turns, 1, "tuned", "system")).toEqual({ prompt: "Once upon" });
  });

  it("writes, is asked again, and is cleared", () => {
    let turns = changed([], { kind: "ask", mode: "chat", prompt: "Hi", models: ["tuned"] });
    expect(isWriting(turns)).toBe(true);
    turns = changed(turns, { kind: "answer", turn: 0, model: "tuned", change: { text: "Hello", state: "done" } });
    turns = changed(turns, { kind: "answer", turn: 0, model: "gone", change: { text: "?" } });
    expect(turns[0]?.answers).toMatchObject({ tuned: { text: "Hello", state: "done" } });
    expect(isWriting(turns)).toBe(false);
    expect(changed(turns, { kind: "retry", models: ["base", "tuned"] })[0]?.answers.tuned?.text).toBe("");
    expect(changed(turns, { kind: "clear" })).toEqual([]);
  });

  it("counts tokens per second between the first and the last", () => {
    expect(tokensPerSecond({ ...answer("x"), tokens: 11, seconds: 2 })).toBe(5);
    expect(tokensPerSecond({ ...answer("x"), tokens: 1, seconds: 0 })).toBeNull();
  });
});

describe("what a tab keeps", () => {
  beforeEach(() => sessionStorage.clear());

  it("comes back, with what was being written marked as stopped", () => {
    saveTurns("j", changed([], { kind: "ask", mode: "chat", prompt: "Hi", models: ["tuned"] }));
    expect(loadTurns("j")[0]?.answers.tuned?.state).toBe("stopped");
    expect(loadTurns("other")).toEqual([]);
  });

  it("is nothing when it cannot be read", () => {
    sessionStorage.setItem("playground turns j", "{");
    expect(loadTurns("j")).toEqual([]);
  });
});

describe("sampling", () => {
  it("is sent as numbers, and says only what was set", () => {
    expect(sampledBy(STARTING, "tuned", 64)).toMatchObject({ max_tokens: 64 });
    expect(sampledBy(STARTING, "tuned", null)).toEqual({ model: "tuned", temperature: 0.7, top_p: 1, max_tokens: 256 });
    expect(sampledBy({ ...STARTING, temperature: "", stop: "###\n\nEnd", seed: "7" }, "base", 512)).toMatchObject({ temperature: 0.7, stop: ["###", "End"], seed: 7 });
  });

  it("names what cannot be sent", () => {
    expect(mistakesIn({ ...STARTING, temperature: "3", topP: "0", maxTokens: "1.5" })).toEqual({
      temperature: "The value must be at most 2.",
      topP: "The value must be greater than 0.",
      maxTokens: "Enter a whole number.",
    });
    expect(mistakesIn(STARTING)).toEqual({});
  });
});

describe("a piece of an answer", () => {
  it("is read from chat and from completions", () => {
    expect(readPiece({ choices: [{ delta: { content: "Hi" }, finish_reason: null }] })).toEqual({ text: "Hi", finish: null, tokens: null });
    expect(readPiece({ choices: [{ text: " there", finish_reason: "length" }] })).toEqual({ text: " there", finish: "length", tokens: null });
    expect(readPiece({ choices: [], usage: { completion_tokens: 12 } })).toEqual({ text: "", finish: null, tokens: 12 });
    expect(readPiece({ choices: [{ delta: { role: "assistant" } }] })).toBeNull();
  });

  it("may be a failure, in the model's own sentence", () => {
    expect(() => readPiece({ error: { message: "Out of memory.", code: "oom" } })).toThrow("Out of memory.");
  });
});
