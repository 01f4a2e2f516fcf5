// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import type { RunRow } from "@/api/types";
import { serveFrom } from "@/test-server";
import ComparePanel from "./compare-panel";

// Not what is tested here, and they need a canvas.
vi.mock("@/charts/chart-card", () => ({ ChartCard: () => null }));
vi.mock("./parallel-panel", () => ({ ParallelPanel: () => null }));

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
});

const row = (id: string) => ({ id, name: id, run_ids: [id], members: [], status: "completed", cells: {}, tags: [], notes: "" }) as unknown as RunRow;

it("says why the chart and the differences of the chosen runs cannot be read", async () => {
  serveFrom(({ path }) => ({ status: 400, body: { code: "broken", detail: path.endsWith("/overlay") ? "The curves cannot be read." : "The configs cannot be read." } }));
  render(
    <QueryClientProvider client={queryClient}>
      <ComparePanel rows={[row("a"), row("b")]} configs={[]} metrics={["train/loss"]} query="" onClear={() => {}} />
    </QueryClientProvider>,
  );
  await waitFor(() => expect(screen.getAllByRole("alert").map(({ textContent }) => textContent)).toEqual([expect.stringContaining("The curves cannot be read."), expect.stringContaining("The configs cannot be read.")]));
});
