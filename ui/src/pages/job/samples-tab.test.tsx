// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { serveFrom } from "@/test-server";
import { testJob } from "@/test-job";
import { SamplesTab } from "./samples-tab";

vi.mock("./samples-over-steps", () => ({ SamplesOverSteps: () => null }));
vi.mock("./overview-tab", () => ({ TabLink: "a" }));

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("says that there are no answers only when it knows", async () => {
  let readable = false;
  serveFrom(() => (readable ? { body: { items: [] } } : { status: 400, body: { code: "broken", detail: "The evaluations cannot be read." } }));
  render(
    <QueryClientProvider client={queryClient}>
      <SamplesTab job={testJob({ status: "completed" })} />
    </QueryClientProvider>,
  );
  expect(screen.queryByText("No answers yet.")).toBeNull();
  expect((await screen.findByRole("alert")).textContent).toContain("The evaluations cannot be read.");
  expect(screen.queryByText("No answers yet.")).toBeNull();
  readable = true;
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  await waitFor(() => expect(screen.getByText("No answers yet.")).toBeDefined());
});
