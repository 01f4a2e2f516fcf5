// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { Compared } from "./improvement-card";

afterEach(cleanup);

const [first, last] = [{ step: 0, loss: 3 }, { step: 50, loss: 1.5 }];
const found = { verdict: "yes" as const, text: "Yes", first, lowest: last, latest: last, compared: last, not_finite_since: null, change: -1.5, low: null, high: null, has_best: true, interval: null, line: "" };

it("calls the newest evaluation the latest", () => {
  render(<Compared found={found} />);
  expect(screen.getByRole("row", { name: /Step 50/ }).textContent).toContain("latest");
  expect(document.body.textContent).toContain("−50 % eval loss");
});

it("calls an evaluation before NaN the last finite one, and not a gain", () => {
  render(<Compared found={{ ...found, verdict: "no", text: "No", not_finite_since: 100, has_best: false }} />);
  expect(screen.getByRole("row", { name: /Step 50/ }).textContent).toContain("last finite");
  expect(document.body.textContent).not.toContain("latest");
  expect(document.body.textContent).toContain("3 → not finite");
  expect(document.body.textContent).not.toContain("% eval loss");
});

it("compares nothing while there is only one evaluation", () => {
  render(<Compared found={{ ...found, verdict: "unclear", text: "Not clear: only one evaluation", lowest: first, latest: first, compared: first, change: 0 }} />);
  expect(screen.getByRole("row", { name: /Base model/ }).textContent).toContain("3");
  expect(document.body.textContent).not.toContain("→");
  expect(document.body.textContent).not.toContain("about the same");
});
