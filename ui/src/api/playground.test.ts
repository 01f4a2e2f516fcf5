import { expect, it, vi } from "vitest";
import { askModel, eventsOf } from "./playground";

function streamOf(pieces: (string | Uint8Array)[], onCancel?: () => void) {
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(typeof piece === "string" ? encoder.encode(piece) : piece);
      if (!onCancel) controller.close();
    },
    cancel: onCancel,
  });
}

async function read(pieces: (string | Uint8Array)[]) {
  const events: string[] = [];
  for await (const event of eventsOf(streamOf(pieces))) events.push(event);
  return events;
}

it("gives the data of each event", async () => {
  expect(await read(['data: {"a":1}\n\ndata: [DONE]\n\n'])).toEqual(['{"a":1}', "[DONE]"]);
});

it("gives the same events wherever the network cuts", async () => {
  const text = 'data: {"t":"Grüße 🌷"}\r\n\r\n: a comment\r\nevent: x\r\ndata: two\r\ndata:lines\r\n\r\n';
  const bytes = new TextEncoder().encode(text);
  const whole = await read([text]);
  expect(whole).toEqual(['{"t":"Grüße 🌷"}', "two\nlines"]);
  for (let at = 1; at < bytes.length; at += 1) expect(await read([bytes.slice(0, at), bytes.slice(at)])).toEqual(whole);
  expect(await read([...bytes].map((byte) => Uint8Array.of(byte)))).toEqual(whole);
});

it("says nothing for an event that was cut off", async () => {
  expect(await read(["data: whole\n\ndata: half"])).toEqual(["whole"]);
});

it("calls the stream off when nobody reads on", async () => {
  const called = vi.fn();
  for await (const event of eventsOf(streamOf(["data: one\n\n"], called))) {
    expect(event).toBe("one");
    break;
  }
  expect(called).toHaveBeenCalled();
});

const piece = (content: string) => `data: ${JSON.stringify({ choices: [{ delta: { content }, finish_reason: null }] })}\n\n`;

async function ask(stream: ReadableStream<Uint8Array>) {
  vi.stubGlobal("window", { location: { origin: "http://localhost" }, fetch: async () => new Response(stream) });
  let text = "";
  try {
    for await (const next of askModel("s", { prompt: "Once" }, { model: "m", temperature: 1, top_p: 1, max_tokens: 9 }, new AbortController().signal)) text += next.text;
    return { text, problem: null };
  } catch (problem) {
    return { text, problem };
  } finally {
    vi.unstubAllGlobals();
  }
}

it("takes an answer for complete only when the model said that it is", async () => {
  expect(await ask(streamOf([piece("upon"), "data: [DONE]\n\n"]))).toEqual({ text: "upon", problem: null });
  expect(await ask(streamOf([piece("upon")]))).toMatchObject({ text: "upon", problem: { code: "answer_interrupted" } });
});

it("says that the connection broke when it breaks inside an answer", async () => {
  let sent = false;
  const stream = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (sent) controller.error(new TypeError("network error"));
      else controller.enqueue(new TextEncoder().encode(piece("upon")));
      sent = true;
    },
  });
  expect(await ask(stream)).toMatchObject({ text: "upon", problem: { code: "answer_interrupted" } });
});
