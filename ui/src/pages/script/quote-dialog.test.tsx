// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { ApiProblem } from "@/api/problem";
import { queryClient } from "@/api/client";
import { serveFrom } from "@/test-server";
import { QuoteDialog } from "./quote-dialog";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const quote = {
  provider: "lambda",
  offer: { provider: "lambda", gpu: "A10", gpus: 1, kind: "on_demand" as const, region: "us-east-1" },
  estimated_cost: { low: 0.4, likely: 0.5, high: 0.9 },
  limits: { budget: 5, max_hours: 2 },
  switch_off: { can: false, reason: "Lambda bills the machine until it is terminated." },
  reasons: ["The cheapest that fits."],
  store: { name: "server" as const, title: "This server", note: "Keep it running." },
  problem: null,
  ignored: [],
};

function show(onStart: () => Promise<void>) {
  serveFrom(() => ({ body: { items: [{ name: "lambda", title: "Lambda" }], storage: { ready: true, reason: null } } }));
  render(
    <QueryClientProvider client={queryClient}>
      <QuoteDialog quote={quote} onStart={onStart} onClose={() => undefined} />
    </QueryClientProvider>,
  );
}

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("says what it would cost, why there and where the bill ends, before anything is rented", async () => {
  const start = vi.fn(async () => undefined);
  show(start);
  expect(await screen.findByText("Lambda · A10 · us-east-1")).toBeDefined();
  for (const text of ["$0.40–0.90", "The cheapest that fits.", "This server", "when the job is done, at $5 or after 2 h", "Lambda bills the machine until it is terminated."]) expect(screen.getByText(text)).toBeDefined();
  expect(start).not.toHaveBeenCalled();
  await userEvent.click(screen.getByRole("button", { name: "Rent and start" }));
  expect(start).toHaveBeenCalledOnce();
});

it("stays open with what the server says when it cannot be started", async () => {
  show(() => Promise.reject(new ApiProblem("Lambda has none left.", { status: 409, code: "sold_out", fieldErrors: [] })));
  await userEvent.click(screen.getByRole("button", { name: "Rent and start" }));
  expect((await screen.findByRole("alert")).textContent).toBe("Lambda has none left.");
});
