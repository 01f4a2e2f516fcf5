import { expect, it, vi } from "vitest";
import { eventsOf } from "./playground";

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
