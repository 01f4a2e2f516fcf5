import { expect, it } from "vitest";
import { authSearch, compareSearch, playgroundSearch, projectsSearch, providersSearch, scriptSearch, settingsSearch } from "./search-params";

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
