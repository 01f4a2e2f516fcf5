/** Sends bytes to an address that takes them piece by piece, each at its offset. */
import { sessionFetch } from "./client";
import { ApiProblem, problemFromBody } from "./problem";

const OFFSET = "Upload-Offset";

async function ask(address: string, init: RequestInit, sent: number): Promise<number> {
  const response = await sessionFetch(new Request(new URL(address, window.location.origin), { credentials: "same-origin", ...init }));
  // An answer without a body cannot say it itself.
  if (response.status === 404) throw new ApiProblem("What this upload belongs to is no longer on the server. Upload it anew.", { status: 404, code: "not_found" });
  if (!response.ok) throw problemFromBody(response.status, await response.json().catch(() => null));
  const offset = Number(response.headers.get(OFFSET) ?? Number.NaN);
  return Number.isInteger(offset) ? offset : sent;
}

/** How many bytes the server has. */
export const receivedAt = (address: string, signal: AbortSignal) => ask(address, { method: "HEAD", signal }, 0);

/** Resolves to how many bytes the server then has. */
export const sendAt = (address: string, bytes: ArrayBuffer, offset: number, signal: AbortSignal) =>
  ask(
    address,
    { method: "PATCH", body: bytes, signal, headers: { [OFFSET]: String(offset), "Content-Type": "application/octet-stream" } },
    offset + bytes.byteLength,
  );
