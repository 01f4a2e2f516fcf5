// @vitest-environment jsdom
import { QueryObserver } from "@tanstack/react-query";
import { act, cleanup, configure, renderHook, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { jobQuery } from "@/api/jobs";
import { queryClient } from "@/api/client";
import type { Job } from "@/api/types";
import { serveFrom } from "@/test-server";
import { runSummary } from "@/test-job";
import { useJobLive } from "./use-job-live";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

class FakeStream extends EventTarget {
  static readonly OPEN = 1;
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

const values = (value: number, step: number) => ({ "train/loss": { step, value } });
const cached = () => queryClient.getQueryData(jobQuery("j").queryKey);

const setVisibility = (visibility: "visible" | "hidden") => {
  vi.spyOn(document, "visibilityState", "get").mockReturnValue(visibility);
  vi.spyOn(document, "hidden", "get").mockReturnValue(visibility === "hidden");
  act(() => void document.dispatchEvent(new Event("visibilitychange")));
};

let metricsFail = false;
let served = { position: 7, series: [loss([1], [5])] };
let job = { id: "j", status: "running", position: 7, summary: runSummary() } as Job;

beforeEach(() => {
  FakeStream.opened = [];
  metricsFail = false;
  served = { position: 7, series: [loss([1], [5])] };
  job = { id: "j", status: "running", position: 7, summary: runSummary({ step: 1, total_steps: 9, values: { ...values(5, 1), "eval/loss": { step: 1, value: 6 } }, system: { "gpu/0/utilization": 50 } }) } as Job;
  vi.stubGlobal("EventSource", FakeStream);
  serveFrom(({ path }) => (metricsFail && path.endsWith("/metrics") ? { status: 503 } : { body: path.endsWith("/metrics") ? structuredClone(served) : path.endsWith("/checkpoints") ? { items: [] } : structuredClone(job) }));
  queryClient.setQueryData(jobQuery("j").queryKey, job);
});

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.useRealTimers();
  vi.restoreAllMocks();
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
  newest().say("delta", 8, { since: 7, series: [loss([2], [4])] });
  newest().say("delta", 8, { since: 7, series: [loss([2], [4])] });
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

it("puts what changed of the job into the page, and keeps the rest", async () => {
  await follow();
  newest().say("delta", 8, { since: 7, job: { summary: { step: 2, values: values(4, 2), system: { "gpu/0/utilization": null, "ram/used": 3 } } } });
  newest().say("delta", 9, { since: 8, job: { attempt: 2 } });
  const { step, total_steps: total, values: last, system } = cached()?.summary ?? runSummary();
  expect([step, total, last, system]).toEqual([2, 9, { ...values(4, 2), "eval/loss": { step: 1, value: 6 } }, { "ram/used": 3 }]);
  expect(cached()).toMatchObject({ attempt: 2, position: 9, status: "running" });
});

it("takes the whole job from the first event after a reconnection", async () => {
  await follow();
  newest().say("delta", 30, { job: { status: "running", attempt: 3, summary: runSummary({ step: 25 }) } });
  expect(cached()).toMatchObject({ attempt: 3, position: 30, summary: { step: 25 } });
});

it("loads the job again when it has not seen what an event follows on, and when an older answer comes late", async () => {
  // As the page shows the job: what nobody shows is not loaded again.
  const hide = new QueryObserver(queryClient, jobQuery("j")).subscribe(() => {});
  await follow();
  await waitFor(() => expect(queryClient.isFetching()).toBe(0));
  job = { ...job, position: 12, attempt: 5 };
  newest().say("delta", 11, { since: 10, job: { attempt: 4 } });
  await waitFor(() => expect(cached()?.attempt).toBe(5));
  // As an answer that was on its way when the event came.
  queryClient.setQueryData(jobQuery("j").queryKey, { ...job, position: 3, attempt: 1 });
  expect(cached()?.attempt).toBe(1);
  await waitFor(() => expect(cached()?.attempt).toBe(5));
  hide();
});

it("says that the connection is lost, and opens another from the last position when the browser gave up", async () => {
  const page = await follow();
  newest().say("delta", 8, { since: 7, series: [loss([2], [4])] });
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

it("connects at once when the page is visible again, whatever was under way when it was hidden", async () => {
  const page = await follow();
  newest().readyState = FakeStream.CLOSED;
  act(() => void newest().dispatchEvent(new Event("error")));
  setVisibility("hidden");
  setVisibility("visible");
  expect(FakeStream.opened).toHaveLength(2);
  act(() => void newest().dispatchEvent(new Event("open")));
  expect(page.current.connection).toBe("live");
});

it("connects at once when the page is visible again and the browser is still waiting to reconnect", async () => {
  await follow();
  newest().readyState = 0;
  act(() => void newest().dispatchEvent(new Event("error")));
  setVisibility("hidden");
  setVisibility("visible");
  expect(FakeStream.opened).toHaveLength(2);
});

it("keeps an open connection when the page was hidden for a moment", async () => {
  await follow();
  newest().readyState = FakeStream.OPEN;
  setVisibility("hidden");
  setVisibility("visible");
  expect(FakeStream.opened).toHaveLength(1);
});

it("connects at once when the browser is online again", async () => {
  await follow();
  newest().readyState = FakeStream.CLOSED;
  act(() => void newest().dispatchEvent(new Event("error")));
  act(() => void window.dispatchEvent(new Event("online")));
  expect(FakeStream.opened).toHaveLength(2);
});

it("loads the curves when the page is visible again, if they could not be loaded before", async () => {
  metricsFail = true;
  const page = renderHook(() => useJobLive("j", "running"));
  await waitFor(() => expect(page.result.current.connection).toBe("lost"));
  setVisibility("hidden");
  metricsFail = false;
  setVisibility("visible");
  await waitFor(() => expect(FakeStream.opened).toHaveLength(1));
  expect(page.result.current.store.loaded).toBe(true);
});

it("loads the curves when the page is visible again after a long time", async () => {
  vi.useFakeTimers();
  metricsFail = true;
  renderHook(() => useJobLive("j", "running"));
  setVisibility("hidden");
  await act(() => vi.advanceTimersByTimeAsync(61_000));
  metricsFail = false;
  setVisibility("visible");
  await act(() => vi.advanceTimersByTimeAsync(0));
  expect(FakeStream.opened).toHaveLength(1);
});

it("closes the connection of a hidden page, also when its curves were loaded again meanwhile", async () => {
  await follow();
  vi.useFakeTimers();
  setVisibility("hidden");
  newest().say("reset", 900, {});
  await act(() => vi.advanceTimersByTimeAsync(70_000));
  expect(newest().readyState).toBe(FakeStream.CLOSED);
  setVisibility("visible");
  expect(newest().readyState).not.toBe(FakeStream.CLOSED);
});

it("no longer says that the connection is lost once the curves of a job at rest are loaded", async () => {
  metricsFail = true;
  const page = renderHook(() => useJobLive("j", "completed"));
  await waitFor(() => expect(page.result.current.connection).toBe("lost"));
  metricsFail = false;
  await waitFor(() => expect(page.result.current.connection).toBe("resting"));
  expect(page.result.current.store.loaded).toBe(true);
});

it("holds no connection for a job at rest", async () => {
  const page = renderHook(() => useJobLive("j", "completed"));
  await waitFor(() => expect(page.result.current.store.loaded).toBe(true));
  expect(FakeStream.opened).toHaveLength(0);
  expect(page.result.current.connection).toBe("resting");
});
