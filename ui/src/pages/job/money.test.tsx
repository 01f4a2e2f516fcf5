// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import type { Requirements } from "@/api/scripts";
import { testJob } from "@/test-job";
import { CHEAPEST_NEXT, failoverBody } from "@/pages/offers/failover-fields";
import { serveFrom } from "@/test-server";
import { findingsOf } from "./findings";
import { CostCard } from "./job-stats";
import { MoveDialog, moveNeeds } from "./move-dialog";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const cost = { so_far: 8.25, hourly: 1.1, estimated: { low: 9, likely: 12, high: 18 }, limit: 10, provider: "lambda", gpu: "A10", gpus: 2, region: "us-east-1", kind: "on_demand", billed_seconds: 27_000, running: true, detail: null, page: "https://cloud.example/1", warnings: [50, 80] };
const job: typeof testJob = (change = {}) => testJob({ kind: "script", ...change });
const serveNothing = () => serveFrom(({ path }) => ({ body: path === "/api/machines" ? { items: [] } : path === "/api/providers" ? { items: [], storage: { ready: true, reason: null } } : { need: {}, offers: [], excluded: [], archetype: null, usual: null } }));
const within = (element: React.ReactNode) => render(<QueryClientProvider client={queryClient}>{element}</QueryClientProvider>);

afterEach(() => {
  cleanup();
  queryClient.clear();
});

describe("the cost of a job", () => {
  it("is shown with its budget, its range and its machine", () => {
    serveNothing();
    within(<CostCard job={job({ summary: { cost } })} />);
    expect(screen.getByText("$8.25")).toBeDefined();
    expect(screen.getByRole("progressbar", { name: /budget/ }).getAttribute("aria-valuenow")).toBe("83");
    for (const text of ["lambda · 2 × A10 · us-east-1", "$9.00–18.00", "7 h 30 m", "billed now", "so far, budget $10"]) expect(screen.getByText(text)).toBeDefined();
  });

  it("lists every machine with what the provider billed beside what was metered", async () => {
    const machine = { id: "a", job_id: "j", job_name: "J", attempt: 1, provider: "lambda", gpu: "A10", gpus: 1, region: null, state: "lost", detail: "The provider took the machine away.", hourly: 1, billed_seconds: 60, cost: 1.5, bill: 1.25, started_at: null, ended_at: null, page: null };
    serveFrom(({ path }) => ({ body: path === "/api/rentals" ? { items: [{ ...machine, id: "b", attempt: 2, provider: "modal", state: "running", detail: "", bill: null }, machine], total: 2 } : { items: [], storage: { ready: true, reason: null } } }));
    within(<CostCard job={job({ summary: { cost } })} />);
    const chain = await screen.findByRole("region", { name: "Machines of this job" });
    expect([...chain.querySelectorAll("li")].map((each) => each.textContent)).toEqual([
      "1. lambda · A10lost1 m · $1.25 billed, $1.50 meteredThe provider took the machine away.",
      "2. modal · A10running1 m · $1.50",
    ]);
  });

  it("is absent where nothing is rented", () => {
    expect(within(<CostCard job={job()} />).container.textContent).toBe("");
  });
});

const mark = (percent: number, scope: string) => ({ kind: "budget", attempt: 1, step: 3, percent, scope, sentence: `${percent} % of the ${scope}'s budget` });

describe("findings about money", () => {
  it("are the last warning of each budget", () => {
    const result = findingsOf(job({ summary: { marks: [mark(50, "job"), mark(80, "job"), mark(50, "user")] } }), true);
    expect(result.map(({ tone, text }) => [tone, text])).toEqual([
      ["attention", "80 % of the job's budget"],
      ["plain", "50 % of the user's budget"],
    ]);
  });

  it("say that a limit paused the job, and nothing else about it", () => {
    const result = findingsOf(job({ status: "paused", error_code: "budget", error_message: "The budget of $10 is spent. Allow more.", summary: { marks: [mark(100, "job")] } }), true);
    expect(result.map(({ tone, title, text }) => [tone, title, text])).toEqual([["bad", "Paused: the budget is spent.", "The budget of $10 is spent. Allow more."]]);
  });

  it("tell why nothing runs yet instead of a position in the queue", () => {
    const result = findingsOf(job({ status: "queued", queue_position: 1, summary: { waiting: "Lambda has no A10 to give; asked again in a minute." } }), true);
    expect(result.map(({ text }) => text)).toEqual(["Lambda has no A10 to give; asked again in a minute."]);
  });
});

describe("moving to another machine", () => {
  it("begins with what the job is known to need, and with the time that is left", () => {
    const requirements = { gpu_memory_gb: { value: 10.5 }, duration_hours: { value: 4 } } as Requirements;
    expect(moveNeeds(job({ summary: { step: 50, total_steps: 100 } }), requirements)).toEqual({ memoryGb: 10.5, hours: 2 });
    const planned = { device: "cuda", memory_total_bytes: 8 * 2 ** 30, memory_limit_bytes: 1e10, memory: { weights: 8 * 2 ** 30, gradients: 0, optimizer: 0, activations: 0, overhead: 0, limit_bytes: 0 }, seconds: 7200 };
    expect(moveNeeds(job({ kind: "train", plan: planned }), undefined)).toEqual({ memoryGb: 8, hours: 2 });
    expect(moveNeeds(job({ offer: { memory_gb: 24 } }), undefined)).toEqual({ memoryGb: 24, hours: null });
  });

  it("sends the offer and the limits, and closes", async () => {
    const sent = serveNothing();
    const onClose = vi.fn();
    within(<MoveDialog job={job({ kind: "train", status: "paused", budget: 10 })} onClose={onClose} />);
    expect(screen.getByText(/Enter the required GPU memory/)).toBeDefined();
    const budget = screen.getByRole("textbox", { name: /^Budget/ });
    await userEvent.clear(budget);
    await userEvent.type(budget, "25");
    await userEvent.click(screen.getByRole("button", { name: "Move job" }));
    await waitFor(() => expect(onClose).toHaveBeenCalled());
    expect(sent.find(({ method }) => method === "POST")).toEqual({ method: "POST", path: "/api/jobs/j/move", body: { offer: null, budget: 25, max_hours: null, ...failoverBody(CHEAPEST_NEXT) } });
  });
});
