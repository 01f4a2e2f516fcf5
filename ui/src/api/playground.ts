/** Playground sessions, and the answers of a model as they stream in, token by token. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient, sessionFetch } from "./client";
import { ApiProblem, pollInterval, problemFromBody } from "./problem";
import type { components } from "./schema";
import { number, text } from "./summary";

type Json = Record<string, unknown>;

const record = (value: unknown): Json => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {});

/**
 * Server-sent events from an answer to `fetch`, for what EventSource cannot ask: it only knows GET.
 *
 * The network cuts where it likes, inside a line, a character or between "\r" and "\n"; an event is
 * handed on only when its empty line has arrived. An event that the stream cuts off is dropped.
 */
export async function* eventsOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  const events = new EventLines();
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(() => {
        throw interrupted();
      });
      if (done) return;
      yield* events.take(decoder.decode(value, { stream: true }));
    }
  } finally {
    // Somebody who stops reading also tells the server, which then stops writing.
    void reader.cancel().catch(() => undefined);
  }
}

class EventLines {
  #rest = "";
  #data: string[] = [];

  *take(chunk: string): Generator<string> {
    this.#rest += chunk;
    for (;;) {
      const end = /\r\n|\n|\r(?!$)/.exec(this.#rest);
      if (end === null) return;
      const line = this.#rest.slice(0, end.index);
      this.#rest = this.#rest.slice(end.index + end[0].length);
      if (line === "") {
        if (this.#data.length > 0) yield this.#data.join("\n");
        this.#data = [];
      } else if (line.startsWith("data:")) {
        this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
  }
}

/** The model to load: a run's finished model, one of its checkpoints, or a model of one's own. */
export type Source = Pick<components["schemas"]["OpenPlayground"], "job_id" | "checkpoint_id" | "other_checkpoint_id" | "model_id">;

const LOADING_EVERY = 700;
const LOADED_EVERY = 5_000;

/** One playground and how far it is. */
export const playgroundQuery = (id: string) =>
  queryOptions({
    queryKey: ["playground", id],
    queryFn: ({ signal }) => answerOf(api.GET("/api/playground/{job_id}", { params: { path: { job_id: id } }, signal })),
    staleTime: 0,
    refetchInterval: (query) => pollInterval(query, query.state.data?.state === "ready" || query.state.data?.state === "ended" ? LOADED_EVERY : LOADING_EVERY),
  });

/** The models that are loaded or loading. */
export const playgroundsQuery = queryOptions({
  queryKey: ["playground", "all"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/playground", { signal })),
});

/** Loads a model: once for every attempt, however often the page is drawn. The one that is loaded already stays. */
export const openedQuery = (source: Source, attempt: number) =>
  queryOptions({
    queryKey: ["playgrounds opened", source, attempt],
    queryFn: async () => {
      const job = await answerOf(api.POST("/api/playground", { body: source }));
      // Opened again, it keeps its id: that it once ended is no longer true.
      queryClient.removeQueries({ queryKey: playgroundQuery(job.id).queryKey });
      return job;
    },
    retry: false,
    staleTime: Infinity,
    gcTime: 0,
  });

export const forgetPlaygrounds = () => queryClient.invalidateQueries({ queryKey: ["playground"] });

export type Message = { role: "system" | "user" | "assistant"; content: string };

export type Sampled = { model: string; temperature: number; top_p: number; max_tokens: number; stop?: string[]; seed?: number };

export type Question = { messages: Message[] } | { prompt: string };

type Piece = { text: string; finish: string | null; tokens: number | null };

/** Asks a loaded model. Pieces come as it writes them; calling the request off stops it. */
export async function* askModel(sessionId: string, question: Question, sampled: Sampled, signal: AbortSignal): AsyncGenerator<Piece> {
  const way = "messages" in question ? "chat/completions" : "completions";
  const request = new Request(new URL(`/api/playground/${sessionId}/v1/${way}`, window.location.origin), {
    method: "POST",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...question, ...sampled, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  const response = await sessionFetch(request);
  if (!response.ok || response.body === null) throw refusal(response.status, await response.json().catch(() => null));
  for await (const data of eventsOf(response.body)) {
    if (data === "[DONE]") return;
    const piece = readPiece(JSON.parse(data) as Json);
    if (piece) yield piece;
  }
  throw interrupted();
}

const interrupted = () => new ApiProblem("The connection to the model ended before the answer was complete. Generate the answer again.", { status: 0, code: "answer_interrupted" });

/** Errors of the model have the shape of its protocol; errors of the server have ours. */
function refusal(status: number, body: unknown): ApiProblem {
  const error = record(record(body).error);
  const message = text(error.message);
  return message === null ? problemFromBody(status, body) : new ApiProblem(message, { status, code: text(error.code) ?? "refused" });
}

export function readPiece(chunk: Json): Piece | null {
  if (chunk.error !== undefined) throw refusal(500, chunk);
  const choice = record(Array.isArray(chunk.choices) ? chunk.choices[0] : null);
  const written = text(record(choice.delta).content) ?? text(choice.text) ?? "";
  const tokens = number(record(chunk.usage).completion_tokens);
  const finish = text(choice.finish_reason);
  return written === "" && tokens === null && finish === null ? null : { text: written, finish, tokens };
}
