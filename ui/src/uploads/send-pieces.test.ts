import { describe, expect, it, vi } from "vitest";
import { ApiProblem, unreachable } from "@/api/problem";
import { type Destination, PIECE, sendPieces } from "./send-pieces";

const MIB = 1024 * 1024;
const text = "0123456789".repeat(400_000);
const file = new Blob([text]);

/** A server that keeps what arrives at the right offset, and fails as told. */
function server(given: { has?: number; fail?: (request: number) => Error | null; took?: number } = {}) {
  let stored = text.slice(0, given.has ?? 0);
  let clock = 0;
  let requests = 0;
  const sizes: number[] = [];
  const to: Destination = {
    received: vi.fn(async () => stored.length),
    send: async (bytes, offset) => {
      requests += 1;
      clock += given.took ?? 10;
      const failure = given.fail?.(requests) ?? null;
      if (failure) throw failure;
      if (offset !== stored.length) throw new ApiProblem("wrong offset", { status: 409, code: "wrong_offset" });
      stored += new TextDecoder().decode(bytes);
      sizes.push(bytes.byteLength);
      return stored.length;
    },
  };
  const control = new AbortController();
  const progress: number[] = [];
  const waits: boolean[] = [];
  const pauses: number[] = [];
  const send = () =>
    sendPieces(
      file,
      to,
      { signal: control.signal, onProgress: (sent) => progress.push(sent), onWaiting: (waiting) => waits.push(waiting) },
      {
        now: () => clock,
        pause: async (milliseconds) => {
          pauses.push(milliseconds);
          control.signal.throwIfAborted();
        },
      },
    );
  return { to, send, control, progress, waits, pauses, sizes, stored: () => stored, append: (more: number) => (stored = text.slice(0, stored.length + more)) };
}

describe("sending a file in pieces", () => {
  it("brings the whole file, in order, with progress up to its size", async () => {
    const { send, stored, progress } = server();
    await send();
    expect(stored()).toBe(text);
    expect(progress.at(-1)).toBe(text.length);
    expect(progress.toSorted((a, b) => a - b)).toEqual(progress);
  });

  it("goes on from where the server is", async () => {
    const { send, stored, sizes } = server({ has: 3_000_000 });
    await send();
    expect(stored()).toBe(text);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(1_000_000);
  });

  it("sends nothing when the server has it all", async () => {
    const { send, sizes } = server({ has: text.length });
    await send();
    expect(sizes).toEqual([]);
  });

  it("waits longer and longer for a lost connection, then asks where the server is and continues", async () => {
    const { send, stored, pauses, waits, to } = server({ fail: (request) => (request >= 2 && request <= 4 ? unreachable() : null) });
    await send();
    expect(stored()).toBe(text);
    expect(pauses).toEqual([500, 1_000, 2_000]);
    expect(waits).toEqual([true, true, true, false]);
    expect(to.received).toHaveBeenCalledTimes(4);
  });

  it("believes the server about what arrived before the connection was lost", async () => {
    const lost = server({
      fail: (request) => {
        if (request !== 2) return null;
        lost.append(1_000);
        return unreachable();
      },
    });
    await lost.send();
    expect(lost.stored()).toBe(text);
  });

  it("takes the server's offset when its own is refused", async () => {
    const refused = server({ fail: (request) => (request === 2 ? (refused.append(5), null) : null) });
    await refused.send();
    expect(refused.stored()).toBe(text);
    expect(refused.pauses).toEqual([]);
  });

  it("gives up on a server that refuses every offset", async () => {
    const conflict = new ApiProblem("Another upload is writing this file.", { status: 409, code: "conflict" });
    const { send } = server({ fail: () => conflict });
    await expect(send()).rejects.toBe(conflict);
  });

  it.each([422, 413, 507])("throws what waiting does not mend: status %i", async (status) => {
    const full = new ApiProblem("The disk is full.", { status, code: "disk_full" });
    const { send, pauses } = server({ fail: () => full });
    await expect(send()).rejects.toBe(full);
    expect(pauses).toEqual([]);
  });

  it("stops when it is called off, also while it waits", async () => {
    const called = server({
      fail: () => {
        called.control.abort();
        return unreachable();
      },
    });
    await expect(called.send()).rejects.toThrow("could not be reached");
    expect(called.stored()).toBe("");
  });

  it("sends larger pieces over a fast connection and smaller ones over a slow one", async () => {
    const fast = server();
    await fast.send();
    expect(fast.sizes.slice(0, 2)).toEqual([PIECE.first, 2 * MIB]);
    const slow = server({ took: 10_000 });
    await slow.send();
    expect(slow.sizes.slice(0, 3)).toEqual([MIB, MIB / 2, MIB / 4]);
    expect(Math.min(...slow.sizes.slice(0, -1))).toBe(PIECE.least);
  });

  it("fails when a file can no longer be read instead of waiting for a connection", async () => {
    const { to, control } = server();
    const gone = { size: 10, slice: () => ({ arrayBuffer: () => Promise.reject(new Error("NotReadableError")) }) } as unknown as Blob;
    const sending = sendPieces(gone, to, { signal: control.signal, onProgress: () => {}, onWaiting: () => {} });
    await expect(sending).rejects.toMatchObject({ code: "unreadable_file" });
  });
});
