import { sessionFetch } from "./client";
import { problemFromBody } from "./problem";

export async function askJson<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method, credentials: "same-origin", signal };
  if (body !== undefined) Object.assign(init, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  const response = await sessionFetch(new Request(new URL(path, window.location.origin), init));
  const answer: unknown = response.status === 204 ? null : await response.json().catch(() => null);
  if (!response.ok) throw problemFromBody(response.status, answer);
  return answer as T;
}
