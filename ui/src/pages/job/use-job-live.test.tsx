// @vitest-environment jsdom
import { act, cleanup, renderHook, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { jobQuery } from "@/api/jobs";
import { queryClient } from "@/api/client";
import type { Job } from "@/api/types";
import { serveFrom } from "@/test-server";
import { useJobLive } from "./use-job-live";

class FakeStream extends EventTarget {
  static readonly CLOSED = 2;
  static opened: FakeStream[] = [];
  readyState = 0;
  constructor(readonly url: string) {
    super();
    FakeStream.opened.push(this);
  }
  close() {
    this.readyState = 2;
  }
  say(kind: string, position: number, data: object) {
    this.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(data), lastEventId: String(position) }));
  }
}

const loss = (x: number[], value: number[]) => ({ name: "train/loss", rank: 0, axis: "step", x, value, low: value, high: value, attempt: x.map(() => 1), time: x });
const newest = () => FakeStream.opened.at(-1) as FakeStream;

let served = { position: 7, series: [loss([1], [5])] };

beforeEach(() => {
  FakeStream.opened = [];
  served = { position: 7, series: [loss([1], [5])] };
  vi.stubGlobal("EventSource", FakeStream);
  serveFrom(({ path }) => ({ body: path.endsWith("/metrics") ? structuredClone(served) : path.endsWith("/checkpoints") ? { items: [] } : { id: "j", status: "running" } }));
  queryClient.setQueryData(jobQuery("j").queryKey, { id: "j", status: "running", summary: {} } as Job);
});

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.useRealTimers();
});

async function follow() {
  const page = renderHook(() => useJobLive("j", "running"));
  await waitFor(() => expect(FakeStream.opened).toHaveLength(1));
  act(() => void newest().dispatchEvent(new Event("open")));
  return page.result;
}

it("follows the stream from exactly where the loaded curves end", async () => {
  const page = await follow();
  expect(newest().url).toBe("/api/jobs/j/stream?after=7");
  expect(page.current.connection).toBe("live");
  newest().say("update", 8, { series: [loss([2], [4])] });
  newest().say("update", 8, { series: [loss([2], [4])] });
  expect(page.current.store.curve("train/loss")?.x).toEqual([1, 2]);
});

it("loads everything anew after a reset, and goes on from there", async () => {
  const page = await follow();
  served = { position: 900, series: [loss([50], [2])] };
  newest().say("reset", 900, {});
  await waitFor(() => expect(FakeStream.opened).toHaveLength(2));
  expect(newest().url).toContain("after=900");
  expect(page.current.store.curve("train/loss")?.x).toEqual([50]);
});

it("puts a change of the job into the page", async () => {
  await follow();
  newest().say("update", 8, { job: { status: "pausing", summary: { step: 12 } } });
  expect(queryClient.getQueryData(jobQuery("j").queryKey)).toMatchObject({ status: "pausing", summary: { step: 12 } });
});

it("says that the connection is lost, and opens another from the last position when the browser gave up", async () => {
  const page = await follow();
  newest().say("update", 8, { series: [loss([2], [4])] });
  vi.useFakeTimers();
  newest().readyState = 2;
  act(() => void newest().dispatchEvent(new Event("error")));
  expect(page.current.connection).toBe("lost");
  await act(() => vi.advanceTimersByTimeAsync(3_000));
  expect(FakeStream.opened).toHaveLength(2);
  expect(newest().url).toContain("after=8");
  act(() => void newest().dispatchEvent(new Event("open")));
  expect(page.current.connection).toBe("live");
});

it("holds no connection for a job at rest", async () => {
  const page = renderHook(() => useJobLive("j", "completed"));
  await waitFor(() => expect(page.result.current.store.loaded).toBe(true));
  expect(FakeStream.opened).toHaveLength(0);
  expect(page.result.current.connection).toBe("resting");
});
