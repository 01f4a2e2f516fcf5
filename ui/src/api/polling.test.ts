// @vitest-environment jsdom
import { QueryObserver } from "@tanstack/react-query";
import { afterEach, expect, it, vi } from "vitest";
import { datasetQuery } from "./datasets";
import { playgroundQuery } from "./playground";
import { queryClient } from "./query-client";
import { sharedJobQuery } from "./shares";

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  queryClient.clear();
});

it.each([
  ["dataset", datasetQuery("gone")],
  ["shared job", sharedJobQuery("gone")],
  ["playground", playgroundQuery("gone")],
] as const)("does not ask again for a %s that is not there", async (_, query) => {
  vi.useFakeTimers();
  const fetchMock = vi.fn(() => Promise.resolve(Response.json({ detail: "It is not there.", code: "not_found" }, { status: 404 })));
  vi.stubGlobal("fetch", fetchMock);
  const seen: string[] = [];
  const leave = new QueryObserver<unknown>(queryClient, query as never).subscribe(({ status }) => seen.push(status));
  await vi.advanceTimersByTimeAsync(60_000);
  leave();
  expect(seen.at(-1)).toBe("error");
  expect(seen.slice(seen.indexOf("error"))).not.toContain("pending");
  expect(fetchMock).toHaveBeenCalledTimes(1);
});
