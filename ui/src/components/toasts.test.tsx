// @vitest-environment jsdom
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { dismissToasts, toast, toastFailure, Toasts } from "./toasts";

const pass = (milliseconds: number) => act(() => vi.advanceTimersByTimeAsync(milliseconds));

const visibleToasts = () => screen.queryAllByRole("listitem").filter((item) => item.dataset["visible"] === "true" && item.dataset["removed"] === "false");

beforeEach(() => {
  vi.useFakeTimers();
  render(<Toasts />);
});

afterEach(async () => {
  dismissToasts();
  await pass(1000);
  cleanup();
  vi.useRealTimers();
});

it("shows a failure until it is dismissed, whatever succeeds after it", async () => {
  toastFailure("The upload was refused.");
  for (const number of [1, 2, 3, 4, 5]) toast(`File ${number} is uploaded.`);
  await pass(100);
  expect(visibleToasts()).toHaveLength(6);
  await pass(60_000);
  expect(visibleToasts().map((item) => item.textContent)).toEqual(["The upload was refused."]);
  fireEvent.click(screen.getByRole("button", { name: "Dismiss" }));
  await pass(1000);
  expect(visibleToasts()).toEqual([]);
});

it("shows a failure that is repeated once", async () => {
  toastFailure("The server did not answer.");
  await pass(100);
  toastFailure("The server did not answer.");
  toastFailure("Another failure.");
  await pass(100);
  expect(visibleToasts()).toHaveLength(2);
});

it("announces toasts in a live region that is there before the first of them", () => {
  expect(screen.getByRole("region", { name: /^Notifications/ }).getAttribute("aria-live")).toBe("polite");
});

it("forgets all toasts, for the next person at this page", async () => {
  toastFailure("Not allowed.");
  await pass(100);
  dismissToasts();
  await pass(1000);
  expect(visibleToasts()).toEqual([]);
});
