// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { Tab, TabList, Tabs } from "./tabs";

afterEach(cleanup);

const strip = (chosen: string, count: number) => (
  <Tabs value={chosen}>
    <TabList aria-label="Parts">
      <Tab value="logs">Logs {count}</Tab>
      <Tab value="system">System</Tab>
    </TabList>
  </Tabs>
);

it("stays where somebody scrolled it while its page is drawn again, and moves to another choice", () => {
  const { rerender } = render(strip("logs", 1));
  const box = screen.getByRole("tablist").parentElement as HTMLElement;
  box.scrollLeft = 120;
  rerender(strip("logs", 2));
  expect(box.scrollLeft).toBe(120);
  rerender(strip("system", 2));
  expect(box.scrollLeft).not.toBe(120);
});
