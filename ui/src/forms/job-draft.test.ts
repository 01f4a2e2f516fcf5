// @vitest-environment jsdom
import { beforeEach, expect, it, vi } from "vitest";
import { forgetJobDraft, loadJobDraft, saveJobDraft } from "./job-draft";
import { startingValues } from "./job-form";

const draft = { values: { ...startingValues("new"), name: "Grüße" }, config: { epochs: 7 }, json: null };

beforeEach(() => sessionStorage.clear());

it("keeps a draft for its entry in the history until it is forgotten", () => {
  saveJobDraft("a", "ada", draft);
  expect(loadJobDraft("a", "ada")).toEqual(draft);
  expect(loadJobDraft("b", "ada")).toBeNull();
  forgetJobDraft("a");
  expect(loadJobDraft("a", "ada")).toBeNull();
});

it("is nobody else's", () => {
  saveJobDraft("a", "ada", draft);
  expect(loadJobDraft("a", "eve")).toBeNull();
});

it("does without a browser that keeps anything", () => {
  vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
    throw new DOMException("full", "QuotaExceededError");
  });
  saveJobDraft("a", "ada", draft);
  expect(loadJobDraft("a", "ada")).toBeNull();
});
