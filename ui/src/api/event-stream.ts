/**
 * Server-sent events from an answer to `fetch`, for what EventSource cannot ask: it only knows GET.
 *
 * The network cuts where it likes, inside a line, a character or between "\r" and "\n"; an event is
 * handed on only when its empty line has arrived.
 */

/** The data of each event, as it completes. A stream that ends in the middle of one has said nothing with it. */
export async function* eventsOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  const events = new EventLines();
  try {
    for (;;) {
      const { value, done } = await reader.read();
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

  *take(text: string): Generator<string> {
    this.#rest += text;
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
