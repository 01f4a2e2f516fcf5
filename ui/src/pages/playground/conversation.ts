/** A conversation with one or two models at once, as values: what was asked, what each answered, and what is sent next. */
import type { Message, Question } from "@/api/playground";

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

export type Turn = { mode: Mode; asked: string; answers: Record<string, Answer> };

export const EMPTY_ANSWER: Answer = { text: "", state: "writing", cut: false, tokens: 0, seconds: 0, problem: null };

export type Change =
  | { kind: "ask"; mode: Mode; asked: string; models: readonly string[] }
  | { kind: "answer"; turn: number; model: string; change: Partial<Answer> }
  | { kind: "retry"; models: readonly string[] }
  | { kind: "clear" };

const empty = (models: readonly string[]) => Object.fromEntries(models.map((model) => [model, EMPTY_ANSWER]));

export function changed(turns: readonly Turn[], change: Change): readonly Turn[] {
  if (change.kind === "clear") return [];
  if (change.kind === "ask") return [...turns, { mode: change.mode, asked: change.asked, answers: empty(change.models) }];
  if (change.kind === "retry") return turns.map((turn, place) => (place === turns.length - 1 ? { ...turn, answers: empty(change.models) } : turn));
  return turns.map((turn, place) => {
    const answer = turn.answers[change.model];
    if (place !== change.turn || !answer) return turn;
    return { ...turn, answers: { ...turn.answers, [change.model]: { ...answer, ...change.change } } };
  });
}

/** What a model is asked for its answer to a turn. Each model remembers its own answers, not the other's. */
export function questionFor(turns: readonly Turn[], place: number, model: string, system: string): Question {
  const turn = turns[place];
  if (turn?.mode === "complete") return { prompt: turn.asked };
  const messages: Message[] = system.trim() === "" ? [] : [{ role: "system", content: system }];
  turns.slice(0, place + 1).forEach((earlier, at) => {
    const answer = earlier.answers[model];
    // A turn that this model did not answer would leave two questions in a row, which templates refuse.
    if (earlier.mode === "complete" || (at < place && !answer?.text)) return;
    messages.push({ role: "user", content: earlier.asked });
    if (at < place && answer) messages.push({ role: "assistant", content: answer.text });
  });
  return { messages };
}

export const isWriting = (turns: readonly Turn[]) => turns.some((turn) => Object.values(turn.answers).some((answer) => answer.state === "writing"));

export const tokensPerSecond = ({ tokens, seconds }: Answer) => (tokens > 1 && seconds > 0 ? (tokens - 1) / seconds : null);

const place = (key: string) => `playground ${key}`;

/** Kept for this tab only. A browser that keeps nothing loses the conversation on a reload, and nothing else. */
export function remember(key: string, turns: readonly Turn[]) {
  try {
    if (turns.length === 0) sessionStorage.removeItem(place(key));
    else sessionStorage.setItem(place(key), JSON.stringify(turns));
  } catch {
    // Storage is full or forbidden.
  }
}

export function recall(key: string): Turn[] {
  try {
    const turns = JSON.parse(sessionStorage.getItem(place(key)) ?? "[]") as Turn[];
    // What was being written when the page was left will not be continued.
    return turns.map((turn) => ({
      ...turn,
      answers: Object.fromEntries(Object.entries(turn.answers).map(([model, answer]) => [model, answer.state === "writing" ? { ...answer, state: "stopped" as const } : answer])),
    }));
  } catch {
    return [];
  }
}
