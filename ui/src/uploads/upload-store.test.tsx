// @vitest-environment jsdom
import { act, cleanup, renderHook, waitFor } from "@testing-library/react";
import { afterAll, afterEach, expect, it, vi } from "vitest";
import { ApiProblem } from "@/api/problem";
import type { Destination } from "./send-pieces";
import { type Part, cancelUpload, retryUpload, startUpload, stopUploads, useUploads } from "./upload-store";

const file = new Blob(["x".repeat(1_000)]);
const { arrayBuffer } = Blob.prototype;
// The environment's own Blob cannot be read in parts.
Blob.prototype.arrayBuffer = async () => new ArrayBuffer(1_000);
afterAll(() => {
  Blob.prototype.arrayBuffer = arrayBuffer;
});

const full = new ApiProblem("The disk is full.", { status: 507, code: "disk_full" });

function destination(send: Destination["send"]): Destination {
  return { received: async () => 0, send };
}

function begin(parts: Part[], id = "d1") {
  const onDone = vi.fn();
  const onCancel = vi.fn(async () => {});
  const { result } = renderHook(() => useUploads());
  act(() => startUpload({ target: { kind: "dataset", id }, name: "chats.jsonl", parts, onDone, onCancel }));
  return { result, onDone, onCancel };
}

const forever = destination((_, __, signal) => new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error))));

afterEach(() => {
  act(stopUploads);
  cleanup();
});

it("sends all files of an upload one after the other, and then lets it go", async () => {
  const order: string[] = [];
  const to = (name: string) =>
    destination(async (bytes) => {
      order.push(name);
      return bytes.byteLength;
    });
  const { result, onDone } = begin([
    { file, to: to("first") },
    { file, to: to("second") },
  ]);
  expect(result.current[0]).toMatchObject({ name: "chats.jsonl", size: 2_000, state: "sending" });
  await waitFor(() => expect(onDone).toHaveBeenCalledOnce());
  expect(order).toEqual(["first", "second"]);
  expect(result.current).toHaveLength(0);
});

it("keeps several at once, each with its own progress", () => {
  const { result } = begin([{ file, to: forever }], "d1");
  begin([{ file, to: forever }], "d2");
  expect(result.current.map((upload) => upload.target.id)).toEqual(["d1", "d2"]);
});

it("does not send the same thing twice at once", () => {
  const { result } = begin([{ file, to: forever }]);
  begin([{ file, to: forever }]);
  expect(result.current).toHaveLength(1);
});

it("shows what failed and tries again when asked to", async () => {
  const send = vi.fn<Destination["send"]>().mockRejectedValueOnce(full).mockResolvedValueOnce(1_000);
  const { result, onDone } = begin([{ file, to: destination(send) }]);
  await waitFor(() => expect(result.current[0]).toMatchObject({ state: "failed", problem: "The disk is full." }));
  act(() => retryUpload(result.current[0]?.id ?? 0));
  await waitFor(() => expect(onDone).toHaveBeenCalledOnce());
});

it("removes what has arrived when it is cancelled", async () => {
  const { result, onCancel, onDone } = begin([{ file, to: forever }]);
  await act(() => cancelUpload(result.current[0]?.id ?? 0));
  expect(onCancel).toHaveBeenCalledOnce();
  expect(onDone).not.toHaveBeenCalled();
  expect(result.current).toHaveLength(0);
});

/** Whether closing the page would be held back. */
function closing() {
  const event = new Event("beforeunload", { cancelable: true });
  window.dispatchEvent(event);
  return event.defaultPrevented;
}

it("asks before the page is closed only while something is being sent", async () => {
  expect(closing()).toBe(false);
  const { result } = begin([{ file, to: forever }]);
  expect(closing()).toBe(true);
  await act(() => cancelUpload(result.current[0]?.id ?? 0));
  expect(closing()).toBe(false);
});
