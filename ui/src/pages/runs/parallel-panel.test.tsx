// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import type { RunRow } from "@/api/types";
import { serveFrom } from "@/test-server";
import { ParallelPanel } from "./parallel-panel";

// What leads to other pages does not matter here.
vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), Link: "a", useNavigate: () => () => {} }));

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
});

const row = (id: string) => ({ id, name: id, run_ids: [id], project_id: null, cells: { lr: 0.1, "train/loss.min": 2 } }) as unknown as RunRow;

it.each([
  ["the runs", "/api/runs"],
  ["the configs", "/api/runs/compare"],
])("says when %s cannot be read, and reads again", async (_, broken) => {
  let works = false;
  serveFrom(({ path }) => {
    if (path === broken && !works) return { status: 400, body: { code: "broken", detail: "The store cannot be read." } };
    if (path === "/api/runs") return { body: { statuses: {}, sections: [{ rows: [row("a"), row("b")] }] } };
    return { body: { differences: [{ path: "lr", values: [0.1, 0.2] }], fact_differences: [], equal: [] } };
  });
  render(
    <QueryClientProvider client={queryClient}>
      <ParallelPanel rows={[row("a"), row("b")]} configs={["lr"]} metrics={["train/loss"]} query="" />
    </QueryClientProvider>,
  );
  expect((await screen.findByRole("alert")).textContent).toContain("The store cannot be read.");
  expect(screen.queryByText(/same config/)).toBeNull();
  works = true;
  // The chart itself needs a browser.
  await userEvent.click(screen.getByRole("button", { name: "Show as table" }));
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(await screen.findByRole("columnheader", { name: "lr" })).toBeDefined();
});
