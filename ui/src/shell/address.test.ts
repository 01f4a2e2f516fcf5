// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { authSearch, compareSearch, fragmentValue, playgroundSearch, projectsSearch, providersSearch, safeNextPath, scriptSearch, settingsSearch } from "./address";

it("drops what it does not know", () => {
  expect(authSearch({ tab: "x", next: 5, error: "" })).toEqual({});
  expect(settingsSearch({ tab: "billing" })).toEqual({});
  expect(projectsSearch({ page: "two" })).toEqual({});
});

it("keeps a search for a number", () => {
  expect(projectsSearch({ search: 7, page: 3 })).toEqual({ search: "7", page: 3 });
});

it("leaves the first page out of the address", () => {
  expect(projectsSearch({ page: 1 }).page).toBeUndefined();
  expect(projectsSearch({ page: -2 }).page).toBeUndefined();
});

it("reads the runs of a comparison however they were written, each once and not too many", () => {
  expect(compareSearch({ job: ["a", "b", "a"] }).job).toEqual(["a", "b"]);
  expect(compareSearch({ job: "a,b" }).job).toEqual(["a", "b"]);
  expect(compareSearch({ job: "a" }).job).toEqual(["a"]);
  expect(compareSearch({ job: [1, ""] })).toEqual({});
  expect(compareSearch({ job: "abcdefghij".split("") }).job).toHaveLength(8);
});

it("talks to one thing at a time", () => {
  expect(playgroundSearch({ job: "j", checkpoint: "c", model: "m" })).toEqual({ job: "j", checkpoint: "c" });
  expect(playgroundSearch({ checkpoint: "c", model: "m" })).toEqual({ model: "m" });
});

it("remembers which service is to be connected, and for whom", () => {
  expect(providersSearch({ connect: "lambda", back: "/script", more: 1 })).toEqual({ connect: "lambda", back: "/script" });
  expect(scriptSearch({ project: 5 })).toEqual({});
});

describe("where a sign-in leads", () => {
  it.each(["/projects", "/projects/7?x=1#top", "/settings?tab=tokens"])("follows a path of this site: %s", (next) => {
    expect(safeNextPath(next)).toBe(next);
  });

  it.each([
    undefined,
    "",
    "projects",
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example/",
    "\\\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "javascript:alert(1)",
    "/./%2F/../..//evil.example",
  ])("goes home instead of to %j", (next) => {
    expect(safeNextPath(next)).toBe("/dashboard");
  });

  it.each(["/auth", "/auth/verify", "/api/auth/sign-out"])("does not lead back to the door: %s", (next) => {
    expect(safeNextPath(next)).toBe("/dashboard");
  });
});

it("reads a secret with or without the sign before it", () => {
  expect(fragmentValue("#token=ab-c_1", "token")).toBe("ab-c_1");
  expect(fragmentValue("invite=x&other=y", "invite")).toBe("x");
});

it("takes an empty or absent secret for none", () => {
  expect(fragmentValue("#token=", "token")).toBeNull();
  expect(fragmentValue("", "token")).toBeNull();
});
