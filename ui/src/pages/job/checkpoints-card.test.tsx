// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { testJob } from "@/test-job";
import { serveFrom } from "@/test-server";
import { CheckpointsCard } from "./checkpoints-card";

vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), Link: "a", useNavigate: () => () => {} }));

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const checkpoint = (step: number) => ({ id: `c${step}`, step, best: false, size: 100, metrics: {}, saved_at: "2026-11-01T00:00:00Z", details: { optimizations: [] } });

function show(steps: number[]) {
  const sent = serveFrom(({ method, path }) => ({ body: method === "POST" ? testJob({ id: "e1", kind: "export" }) : path.endsWith("/checkpoints") ? { items: steps.map(checkpoint), facts: {} } : { items: [] } }));
  render(
    <QueryClientProvider client={queryClient}>
      <CheckpointsCard job={testJob({ id: "4b0f", kind: "train" })} />
    </QueryClientProvider>,
  );
  return sent;
}

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("averages two or more chosen checkpoints and exports the mean", async () => {
  const user = userEvent.setup();
  const sent = show([30, 20, 10]);
  await user.click(await screen.findByRole("checkbox", { name: "Choose step 30" }));
  const average = screen.getByRole<HTMLButtonElement>("button", { name: "Average and export" });
  expect(average.disabled).toBe(true);
  await user.click(screen.getByRole("checkbox", { name: "Choose step 10" }));
  expect(screen.getByText("2 checkpoints chosen")).toBeDefined();
  await user.click(average);
  expect(await screen.findByText(/of steps 10, 30\./)).toBeDefined();
  await user.click(screen.getByRole("button", { name: "Export" }));
  await waitFor(() => expect(sent.find(({ method }) => method === "POST")).toMatchObject({ path: "/api/jobs/4b0f/exports", body: { checkpoint_id: "c10", average_with: ["c30"] } }));
  await waitFor(() => expect(screen.queryByRole("button", { name: "Average and export" })).toBeNull());
});

it("offers no choice where there is one checkpoint", async () => {
  show([10]);
  expect(await screen.findByRole("table", { name: "Checkpoints" })).toBeDefined();
  expect(screen.queryByRole("checkbox")).toBeNull();
});
