import { expect, it } from "vitest";
import { authSearch, projectsSearch, settingsSearch } from "./search-params";

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
