// @vitest-environment jsdom
import { beforeEach, expect, it, vi } from "vitest";
import { EMPTY, loadDraft, saveDraft, withFiles } from "./script-draft";

const draft = { ...withFiles(EMPTY, [{ path: "train.py", text: "x = 'Grüße'" }, { path: "w.bin", bytes: new Uint8Array([0, 255, 7]) }]), budget: "5", confirmed: true };

beforeEach(() => sessionStorage.clear());

it("keeps texts, other files and figures over a reload, but no consent", () => {
  expect(saveDraft("ada", draft)).toBe(true);
  expect(loadDraft("ada")).toEqual({ ...draft, confirmed: false });
});

it("is nobody else's", () => {
  saveDraft("ada", draft);
  expect(loadDraft("eve")).toEqual(EMPTY);
});

it("says when there is more than a browser keeps, and leaves no older state behind", () => {
  saveDraft("ada", draft);
  vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
    throw new DOMException("full", "QuotaExceededError");
  });
  expect(saveDraft("ada", { ...draft, name: "newer" })).toBe(false);
  expect(loadDraft("ada")).toEqual(EMPTY);
});

it("is gone once there are no files", () => {
  saveDraft("ada", draft);
  saveDraft("ada", EMPTY);
  expect(sessionStorage.length).toBe(0);
});
