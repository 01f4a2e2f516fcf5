// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, it } from "vitest";
import { queryClient } from "@/api/client";
import type { JobStatus } from "@/api/types";
import { serveFrom } from "@/test-server";
import { testJob } from "@/test-job";
import { OutputCard } from "./output-card";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const FULL = { status: 503, body: { detail: "The disk of the server cannot be read.", code: "disk_unreadable" } };
const REFUSED = { status: 400, body: { detail: "The search text is too long.", code: "invalid" } };

let readable = true;

beforeEach(() => {
  readable = true;
  serveFrom(({ path }) => {
    if (path.endsWith("/search")) return readable ? { body: { lines: ["found it"], more: false } } : REFUSED;
    return readable ? { body: { lines: ["step 1"], start: 0, end: 7 } } : FULL;
  });
});

afterEach(() => {
  cleanup();
  queryClient.clear();
});

const show = (status: JobStatus) =>
  render(
    <QueryClientProvider client={queryClient}>
      <OutputCard job={testJob({ status })} />
    </QueryClientProvider>,
  );

it("says why the output cannot be read, and reads it when asked again", async () => {
  readable = false;
  show("completed");
  expect((await screen.findByRole("alert")).textContent).toContain("The disk of the server cannot be read.");
  expect(screen.queryByText("Loading")).toBeNull();
  readable = true;
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(await screen.findByText("step 1")).toBeDefined();
  expect(screen.queryByRole("alert")).toBeNull();
});

it("reads the output of a job at rest by itself once the server answers again", async () => {
  readable = false;
  show("completed");
  await screen.findByRole("alert");
  readable = true;
  expect(await screen.findByText("step 1")).toBeDefined();
  expect(screen.queryByRole("alert")).toBeNull();
});

it("keeps the lines that are there while newer ones cannot be read", async () => {
  show("running");
  await screen.findByText("step 1");
  readable = false;
  await screen.findByRole("alert");
  expect(screen.getByText("step 1")).toBeDefined();
});

it("says why a search failed, not that no line matches", async () => {
  show("completed");
  await screen.findByText("step 1");
  readable = false;
  await userEvent.type(screen.getByRole("searchbox"), "loss");
  expect((await screen.findByRole("alert")).textContent).toContain("The search text is too long.");
  expect(screen.queryByText("No line matches the search.")).toBeNull();
  readable = true;
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  await waitFor(() => expect(screen.getByText("found it")).toBeDefined());
});
