// @vitest-environment jsdom
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { FilterField } from "./filter-field";

beforeEach(() => void vi.useFakeTimers());

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

const type = (text: string) => fireEvent.change(screen.getByRole("combobox"), { target: { value: text } });
const typed = () => screen.getByRole<HTMLInputElement>("combobox").value;
const pause = () => act(() => vi.advanceTimersByTime(400));

function show(onChange: (text: string) => void) {
  const field = (text: string) => <FilterField text={text} onChange={onChange} found="" problem={null} columns={[]} />;
  const { rerender } = render(field(""));
  return (text: string) => rerender(field(text));
}

it("keeps what is typed while the address is still changing to what was typed before", () => {
  const onChange = vi.fn();
  const address = show(onChange);
  type("lr >");
  pause();
  expect(onChange).toHaveBeenLastCalledWith("lr >");
  type("lr > 1");
  address("lr >");
  expect(typed()).toBe("lr > 1");
  pause();
  expect(onChange).toHaveBeenLastCalledWith("lr > 1");
});

it("shows the filter of the address when that changes by other means", () => {
  const address = show(() => {});
  type("lr > 1");
  pause();
  address("lr > 1");
  address("status = failed");
  expect(typed()).toBe("status = failed");
  address("");
  expect(typed()).toBe("");
});

it("empties the filter at once", () => {
  const onChange = vi.fn();
  const address = show(onChange);
  address("lr > 1");
  fireEvent.click(screen.getByRole("button", { name: "Clear the filter" }));
  expect(onChange).toHaveBeenLastCalledWith("");
  expect(typed()).toBe("");
});
