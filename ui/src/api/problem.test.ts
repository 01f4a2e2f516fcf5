// @vitest-environment jsdom
import { QueryObserver } from "@tanstack/react-query";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "./client";
import { datasetQuery } from "./datasets";
import { sharedJobQuery } from "./jobs";
import { playgroundQuery } from "./playground";
import { ApiProblem, mayPass, problemFromBody, sentenceOf, unreachable } from "./problem";

it("takes sentence, code and fields from a problem document", () => {
  const problem = problemFromBody(422, {
    code: "invalid_input",
    detail: "name: too long",
    errors: [{ field: "name", message: "Too long." }, { field: 3 }],
  });
  expect(problem).toMatchObject({ message: "name: too long", code: "invalid_input", status: 422 });
  expect(problem.fieldErrors).toEqual([{ field: "name", message: "Too long." }]);
});

it("has a sentence for an answer that is no problem document, such as a proxy's page", () => {
  expect(problemFromBody(502, "<html>Bad gateway</html>").message).toContain("502");
});

it("tries again only what may pass by itself", () => {
  expect(mayPass(unreachable())).toBe(true);
  expect(mayPass(new ApiProblem("", { status: 503, code: "" }))).toBe(true);
  expect(mayPass(new ApiProblem("", { status: 404, code: "" }))).toBe(false);
  expect(mayPass(new TypeError("a bug"))).toBe(false);
});

it("never shows the inside of a bug", () => {
  expect(sentenceOf(new TypeError("undefined is not a function"))).not.toContain("undefined");
});

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
