// @vitest-environment jsdom
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { SearchBox } from "./input";

beforeEach(() => void vi.useFakeTimers());

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

const box = () => screen.getByRole<HTMLInputElement>("searchbox");
const type = (text: string) => fireEvent.change(box(), { target: { value: text } });
const pause = () => act(() => vi.advanceTimersByTime(400));

/** A search box; the returned function says what the address has become. */
function show(onSearch: (text: string) => void) {
  const field = (text: string) => <SearchBox label="Search" text={text} onSearch={onSearch} />;
  const { rerender } = render(field(""));
  return (text: string) => rerender(field(text));
}

it("keeps what is typed while the address is still changing to what was typed before", () => {
  const onSearch = vi.fn();
  const address = show(onSearch);
  type("lora");
  pause();
  expect(box().value).toBe("lora");
  type("lora 7b");
  address("lora");
  expect(box().value).toBe("lora 7b");
  pause();
  address("lora 7b");
  expect(onSearch.mock.calls).toEqual([["lora"], ["lora 7b"]]);
});

it("shows the text of the address when that changes by other means", () => {
  const address = show(() => {});
  type("lora ");
  pause();
  address("lora");
  expect(box().value).toBe("lora ");
  address("");
  expect(box().value).toBe("");
  // The back button, to a search of this page.
  address("lora");
  expect(box().value).toBe("lora");
});
