import { useEffect, useReducer, useRef } from "react";
import { askModel, forgetPlaygrounds } from "@/api/playground";
import { sentenceOf } from "@/api/problem";
import { type Mode, type Turn, changed, isWriting, questionFor, loadTurns, saveTurns } from "./conversation";
import { type SamplingTexts, sampledBy } from "./sampling";

type Setting = { sessionId: string | null; models: readonly string[]; sampling: SamplingTexts };

/** Talks to one or more loaded models, and keeps what was said for as long as the tab lives. */
export function useConversation(key: string, { sessionId, models, sampling }: Setting) {
  const [turns, change] = useReducer(changed, key, loadTurns as (key: string) => readonly Turn[]);
  const request = useRef<AbortController | null>(null);
  const writing = isWriting(turns);

  useEffect(() => {
    // Not with every token: only what is whole is worth keeping.
    if (!writing) saveTurns(key, turns);
  }, [key, turns, writing]);
  useEffect(() => () => request.current?.abort(), []);

  async function answer(all: readonly Turn[], index: number, model: string, signal: AbortSignal) {
    if (sessionId === null) return;
    const say = (now: Partial<Turn["answers"][string]>) => change({ kind: "answer", turn: index, model, change: now });
    let text = "";
    let tokens = 0;
    let first = 0;
    let cut = false;
    try {
      for await (const piece of askModel(sessionId, questionFor(all, index, model, sampling.system), sampledBy(sampling, model), signal)) {
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
    for (const model of models) void answer(all, all.length - 1, model, current.signal);
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
