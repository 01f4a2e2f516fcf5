/** A conversation with one or two models: turns, the next request, and storage for the life of the tab. */
import { useEffect, useReducer, useRef } from "react";
import { askModel, forgetPlaygrounds, type Message, type Question } from "@/api/playground";
import { sentenceOf } from "@/api/problem";
import { sampledBy, type SamplingTexts } from "./sampling";

export type Mode = "chat" | "complete";

export type Answer = {
  text: string;
  state: "writing" | "done" | "stopped" | "failed";
  /** It ended because it was long enough, not because it was finished. */
  cut: boolean;
  tokens: number;
  /** From the first token to the last. */
  seconds: number;
  problem: string | null;
};

export type Turn = { mode: Mode; prompt: string; answers: Record<string, Answer> };

const EMPTY_ANSWER: Answer = { text: "", state: "writing", cut: false, tokens: 0, seconds: 0, problem: null };

type Change =
  | { kind: "ask"; mode: Mode; prompt: string; models: readonly string[] }
  | { kind: "answer"; turn: number; model: string; change: Partial<Answer> }
  | { kind: "retry"; models: readonly string[] }
  | { kind: "clear" };

const empty = (models: readonly string[]) => Object.fromEntries(models.map((model) => [model, EMPTY_ANSWER]));

export function changed(turns: readonly Turn[], change: Change): readonly Turn[] {
  if (change.kind === "clear") return [];
  if (change.kind === "ask") return [...turns, { mode: change.mode, prompt: change.prompt, answers: empty(change.models) }];
  if (change.kind === "retry") return turns.map((turn, index) => (index === turns.length - 1 ? { ...turn, answers: empty(change.models) } : turn));
  return turns.map((turn, index) => {
    const answer = turn.answers[change.model];
    if (index !== change.turn || !answer) return turn;
    return { ...turn, answers: { ...turn.answers, [change.model]: { ...answer, ...change.change } } };
  });
}

/** The request for one model's answer to a turn. Each model sees its own earlier answers, not the other's. */
export function questionFor(turns: readonly Turn[], index: number, model: string, system: string): Question {
  const turn = turns[index];
  if (turn?.mode === "complete") return { prompt: turn.prompt };
  const messages: Message[] = system.trim() === "" ? [] : [{ role: "system", content: system }];
  turns.slice(0, index + 1).forEach((earlier, at) => {
    const answer = earlier.answers[model];
    // A turn that this model did not answer would leave two questions in a row, which templates refuse.
    if (earlier.mode === "complete" || (at < index && !answer?.text)) return;
    messages.push({ role: "user", content: earlier.prompt });
    if (at < index && answer) messages.push({ role: "assistant", content: answer.text });
  });
  return { messages };
}

export const isWriting = (turns: readonly Turn[]) => turns.some((turn) => Object.values(turn.answers).some((answer) => answer.state === "writing"));

export const tokensPerSecond = ({ tokens, seconds }: Answer) => (tokens > 1 && seconds > 0 ? (tokens - 1) / seconds : null);

const storageKey = (key: string) => `playground turns ${key}`;

/** Kept for this tab only. A browser that keeps nothing loses the conversation on a reload, and nothing else. */
export function saveTurns(key: string, turns: readonly Turn[]) {
  try {
    if (turns.length === 0) sessionStorage.removeItem(storageKey(key));
    else sessionStorage.setItem(storageKey(key), JSON.stringify(turns));
  } catch {
    // Storage is full or forbidden.
  }
}

export function loadTurns(key: string): Turn[] {
  try {
    const turns = JSON.parse(sessionStorage.getItem(storageKey(key)) ?? "[]") as Turn[];
    // What was being written when the page was left will not be continued.
    return turns.map((turn) => ({
      ...turn,
      answers: Object.fromEntries(Object.entries(turn.answers).map(([model, answer]) => [model, answer.state === "writing" ? { ...answer, state: "stopped" as const } : answer])),
    }));
  } catch {
    return [];
  }
}

type Setting = { sessionId: string | null; contextLength: number | null; models: readonly string[]; sampling: SamplingTexts };

/** Chats with one or more loaded models, and keeps the turns for as long as the tab lives. */
export function useConversation(key: string, { sessionId, contextLength, models, sampling }: Setting) {
  const [turns, change] = useReducer(changed, key, loadTurns as (key: string) => readonly Turn[]);
  const request = useRef<AbortController | null>(null);
  const writing = isWriting(turns);

  useEffect(() => {
    // Not with every token: only what is whole is worth keeping.
    if (!writing) saveTurns(key, turns);
  }, [key, turns, writing]);
  useEffect(() => () => request.current?.abort(), []);

  async function answer(all: readonly Turn[], index: number, model: string, seed: number, signal: AbortSignal) {
    if (sessionId === null) return;
    const say = (now: Partial<Turn["answers"][string]>) => change({ kind: "answer", turn: index, model, change: now });
    let text = "";
    let tokens = 0;
    let first = 0;
    let cut = false;
    try {
      for await (const piece of askModel(sessionId, questionFor(all, index, model, sampling.system), { seed, ...sampledBy(sampling, model, contextLength) }, signal)) {
        if (piece.text !== "") {
          text += piece.text;
          tokens += 1;
          first ||= performance.now();
        }
        tokens = piece.tokens ?? tokens;
        cut ||= piece.finish === "length";
        say({ text, tokens, cut, ...(piece.text === "" ? {} : { seconds: (performance.now() - first) / 1000 }) });
      }
      say({ state: "done" });
    } catch (error) {
      if (signal.aborted) return say({ state: "stopped" });
      say({ state: "failed", problem: sentenceOf(error) });
      // It may have been unloaded in the meantime.
      void forgetPlaygrounds();
    }
  }

  function begin(all: readonly Turn[]) {
    request.current?.abort();
    const current = new AbortController();
    request.current = current;
    // The same chance for all: what differs is the models' doing.
    const seed = Math.floor(Math.random() * 2 ** 31);
    for (const model of models) void answer(all, all.length - 1, model, seed, current.signal);
  }

  return {
    turns,
    writing,
    ask(mode: Mode, prompt: string) {
      const step = { kind: "ask", mode, prompt, models } as const;
      change(step);
      begin(changed(turns, step));
    },
    retry() {
      const step = { kind: "retry", models } as const;
      change(step);
      begin(changed(turns, step));
    },
    stop: () => request.current?.abort(),
    clear() {
      request.current?.abort();
      change({ kind: "clear" });
    },
  };
}
