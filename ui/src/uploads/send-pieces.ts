/**
 * Sends a file in pieces, each at its offset, until the server has all of it.
 *
 * Only the server knows how much it has: after every doubt (a lost connection, a refused offset) the client asks it, and
 * sending goes on from there. What may pass by itself is waited for, as long as nobody calls it off; everything else
 * is thrown.
 */
import { ApiProblem, mayPass } from "@/api/problem";

export type Destination = {
  /** How many bytes the server has. */
  received: (signal: AbortSignal) => Promise<number>;
  /** Resolves to how many bytes the server then has. */
  send: (bytes: ArrayBuffer, offset: number, signal: AbortSignal) => Promise<number>;
};

type Watch = {
  signal: AbortSignal;
  onProgress: (sent: number) => void;
  /** Whether the connection is lost and sending waits for it. */
  onWaiting: (waiting: boolean) => void;
};

type Surroundings = { now: () => number; pause: (milliseconds: number, signal: AbortSignal) => Promise<void> };

const MIB = 1024 * 1024;
/** Pieces follow the speed of the connection: large ones waste less, small ones lose less and move the bar. */
export const PIECE = { first: MIB, least: MIB / 4, most: 8 * MIB };
const SWIFT = 800;
const SLOW = 4_000;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;
/** A server that refuses every offset will not take the next one either. */
const MOST_REFUSALS = 5;

const surroundings: Surroundings = { now: () => performance.now(), pause };

export async function sendPieces(file: Blob, to: Destination, watch: Watch, around: Surroundings = surroundings): Promise<void> {
  let size = PIECE.first;
  let offset: number | null = null;
  let failures = 0;
  let refusals = 0;
  while (offset === null || offset < file.size) {
    watch.signal.throwIfAborted();
    try {
      if (offset === null) {
        offset = await to.received(watch.signal);
      } else {
        const begun = around.now();
        const bytes = await readBytes(file, offset, size);
        offset = await to.send(bytes, offset, watch.signal);
        size = nextSize(size, around.now() - begun);
        // Only now: a connection that answers questions may still lose what is sent.
        if (failures > 0) watch.onWaiting(false);
        failures = refusals = 0;
      }
      watch.onProgress(Math.min(offset, file.size));
    } catch (error) {
      if (watch.signal.aborted) throw error;
      if (isWrongOffset(error) && refusals < MOST_REFUSALS) {
        refusals += 1;
      } else if (mayPass(error) && !isFull(error)) {
        watch.onWaiting(true);
        await around.pause(Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** failures), watch.signal);
        failures += 1;
      } else {
        throw error;
      }
      offset = null;
    }
  }
}

const isFull = (error: unknown) => error instanceof ApiProblem && error.status === 507;
const isWrongOffset = (error: unknown) => error instanceof ApiProblem && error.status === 409;

function nextSize(size: number, took: number): number {
  if (took < SWIFT) return Math.min(PIECE.most, size * 2);
  return took > SLOW ? Math.max(PIECE.least, size / 2) : size;
}

/** Read before it is sent: a file that changed on the disk would otherwise look like a lost connection. */
async function readBytes(file: Blob, offset: number, size: number): Promise<ArrayBuffer> {
  try {
    return await file.slice(offset, offset + size).arrayBuffer();
  } catch {
    throw new ApiProblem("The file was changed or deleted during the upload. Choose the file again.", { status: 422, code: "unreadable_file" });
  }
}

/** Ends early when the browser is online again, and throws when it is called off. */
function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      signal.removeEventListener("abort", end);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, milliseconds);
    window.addEventListener("online", end);
    signal.addEventListener("abort", end);
  });
}
