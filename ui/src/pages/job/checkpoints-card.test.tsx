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
  let left = steps;
  const sent = serveFrom(({ method, path }) => {
    if (method === "DELETE") left = left.filter((step) => !path.endsWith(`/c${step}`));
    return answer(method, path, left);
  });
  render(
    <QueryClientProvider client={queryClient}>
      <CheckpointsCard job={testJob({ id: "4b0f", kind: "train", status: "completed" })} />
    </QueryClientProvider>,
  );
  return sent;
}

const answer = (method: string, path: string, steps: number[]) => ({ body: method === "POST" ? testJob({ id: "e1", kind: "export" }) : path.endsWith("/checkpoints") ? { items: steps.map(checkpoint), facts: {} } : { items: [] } });

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

it("saves a checkpoint of a running job that has none", async () => {
  const sent = serveFrom(({ path }) => ({ body: path.endsWith("/checkpoints") ? { items: [], facts: {} } : testJob() }));
  render(
    <QueryClientProvider client={queryClient}>
      <CheckpointsCard job={testJob({ id: "4b0f", status: "running" })} />
    </QueryClientProvider>,
  );
  await userEvent.click(await screen.findByRole("button", { name: "Save checkpoint" }));
  await waitFor(() => expect(sent.find(({ method }) => method === "POST")?.path).toBe("/api/jobs/4b0f/save"));
});

it("offers no choice where there is one checkpoint", async () => {
  show([10]);
  expect(await screen.findByRole("table", { name: "Checkpoints" })).toBeDefined();
  expect(screen.queryByRole("checkbox")).toBeNull();
});

/** Deletes the checkpoint of a step by the menu of its row. */
async function remove(step: number) {
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: `More actions for step ${step}` }));
  await user.click(await screen.findByRole("menuitem", { name: "Delete" }));
  await user.click(await screen.findByRole("button", { name: "Delete checkpoint" }));
  await waitFor(() => expect(screen.queryByRole("alertdialog")).toBeNull());
}

it("shows the page before when the last checkpoint of the last page is deleted", async () => {
  show([90, 80, 70, 60, 50, 40, 30, 20, 10]);
  await userEvent.click(await screen.findByRole("button", { name: "Next" }));
  await remove(10);
  expect(await screen.findByRole("checkbox", { name: "Choose step 90" })).toBeDefined();
  expect(screen.queryByRole("navigation")).toBeNull();
});

it("no longer counts a chosen checkpoint that was deleted", async () => {
  show([30, 20, 10]);
  await userEvent.click(await screen.findByRole("checkbox", { name: "Choose step 10" }));
  await remove(10);
  await waitFor(() => expect(screen.queryByText(/chosen/)).toBeNull());
});
