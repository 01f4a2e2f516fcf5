// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { queryClient } from "@/api/client";
import type { StartState } from "@/api/types";
import { testJob } from "@/test-job";
import { serveFrom } from "@/test-server";
import { findingsOf } from "./findings";
import { StartCard } from "./start-card";

const start: StartState = {
  attempt: 1,
  provider: "runpod",
  state: "starting",
  began_at: Date.now() / 1000 - 130,
  timeout_seconds: 600,
  stages: [
    { name: "requested", state: "done", began_at: 0, seconds: 1, text: "8f3k2m in EU-RO-1" },
    { name: "machine", state: "done", began_at: 0, seconds: 41, text: "driver 580.95.05, cu130" },
    { name: "packages", state: "running", began_at: Date.now() / 1000 - 33, seconds: null, text: "14 to install" },
    { name: "data", state: "waiting", began_at: null, seconds: null, text: "" },
    { name: "start", state: "waiting", began_at: null, seconds: null, text: "" },
  ],
  log: [{ seconds: 42, stage: "machine", text: "1 x NVIDIA H100, 580.95.05" }],
  failure_code: null,
  failure: null,
};

const job = (change: Partial<StartState>, more: Parameters<typeof testJob>[0] = {}) => testJob({ kind: "script", status: "provisioning", attempt: 1, ...more, summary: { ...more.summary, start: { ...start, ...change } } });

function show(shown: ReturnType<typeof job>) {
  serveFrom(() => ({ body: { items: [], storage: { ready: true, reason: null } } }));
  return render(
    <QueryClientProvider client={queryClient}>
      <StartCard job={shown} />
    </QueryClientProvider>,
  );
}

afterEach(() => {
  cleanup();
  queryClient.clear();
});

describe("the start of a rented machine", () => {
  it("shows its steps with seconds, its log and what happens at the timeout", () => {
    show(job({}));
    expect(screen.getByText("41 s")).toBeDefined();
    expect(screen.getByText(/^3[3-5] s$/)).toBeDefined();
    expect(screen.getByText("driver 580.95.05, cu130")).toBeDefined();
    expect(screen.getByText("1 x NVIDIA H100, 580.95.05")).toBeDefined();
    expect(screen.getByText(/silent for 10 m/)).toBeDefined();
    expect(screen.getAllByRole("listitem").map((item) => item.textContent?.includes("not begun"))).toEqual([false, false, false, true, true]);
  });

  const broken: Partial<StartState> = { state: "failed", failure_code: "broken_driver", failure: "The driver does not work. Start the job again." };

  it("says why it failed while another machine is tried", () => {
    show(job(broken, { status: "queued" }));
    expect(screen.getByRole("alert").textContent).toBe(broken.failure);
    expect(screen.queryByText(/silent for/)).toBeNull();
  });

  it("leaves the reason of a failed job to the findings", () => {
    const failed = job(broken, { status: "failed", error_code: "broken_driver", error_message: broken.failure });
    show(failed);
    expect(screen.queryByRole("alert")).toBeNull();
    expect(findingsOf(failed, true)).toMatchObject([{ title: "The job did not start.", text: broken.failure }]);
  });

  it("leaves its log, folded, after the first step", () => {
    show(job({ state: "running" }, { status: "running", summary: { step: 3 } }));
    expect(screen.queryByText("Machine up")).toBeNull();
    expect(screen.getByText(/Start of the machine at/)).toBeDefined();
  });

  it("is absent for a job that rents nothing, and for an earlier attempt", () => {
    expect(show(testJob({})).container.textContent).toBe("");
    cleanup();
    expect(show(job({}, { attempt: 2 })).container.textContent).toBe("");
  });
});
