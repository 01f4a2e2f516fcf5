/** A fake server in unit tests: answers by method and path, and remembers what it was sent. */
import { vi } from "vitest";

type Answer = { status?: number; body?: unknown };
type Sent = { method: string; path: string; body: unknown };

export function serveFrom(answer: (sent: Sent) => Answer): Sent[] {
  const sent: Sent[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    const text = await request.text();
    const received = { method: request.method, path: new URL(request.url).pathname, body: text ? JSON.parse(text) : null };
    sent.push(received);
    const { status = 200, body } = answer(received);
    return body === undefined ? new Response(null, { status }) : Response.json(body, { status });
  });
  return sent;
}
