// @vitest-environment jsdom
import { cleanup, render, screen, within } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { SpeedupNote } from "@/pages/jobs/speedup-note";
import { runSummary, testJob } from "@/test-job";
import { detailFacts } from "./checkpoints-card";
import { hostsOf, nodesOf, SystemCard } from "./system-card";

afterEach(cleanup);

const system = { "gpu/0/utilization": 90, "cpu/utilization": 25, "disk/read": 2_000_000, "disk/written": 1_000, "network/received": 5_000, "network/sent": 7_000 };
const rank = (number: number, host: string, state = "alive") => ({ rank: number, host, state, last_seen: 100, step: 7, step_seconds: 0.5 + number });
const spread = { name: "train/step_seconds", mean: 1, lowest: { rank: 0, value: 0.5 }, highest: { rank: 1, value: 1.5 }, spread: 2 };

describe("the machines of a job", () => {
  it("are the one of its telemetry, or all that its ranks are on", () => {
    expect(nodesOf(runSummary({ system, facts: { "gpu/0/name": "NVIDIA H200" } }))).toEqual([{ host: null, gpus: [{ index: 0, name: "NVIDIA H200" }], last: system }]);
    const processes = { ranks: [rank(0, "a"), rank(1, "b")], rank_variance: [], nodes: [{ host: "a", ranks: [0], gpus: [], last: {} }, { host: "b", ranks: [1], gpus: [], last: {} }], left_out: 0 };
    expect(nodesOf(runSummary({ processes, system })).map(({ host }) => host)).toEqual(["a", "b"]);
    expect(hostsOf(runSummary({ processes }))).toEqual({ 0: "a", 1: "b" });
    expect(nodesOf(runSummary())).toEqual([]);
  });

  it("are shown with every rank, how far ranks lie apart, disk and network", () => {
    const processes = { ranks: [rank(0, "a"), rank(1, "a", "dead")], rank_variance: [spread], nodes: [], left_out: 3 };
    render(<SystemCard job={testJob({ summary: { system, processes, facts: { precision: "fp32" } } })} />);
    expect(within(screen.getByRole("table", { name: "Machines now" })).getByText("2 MB/s / 1 kB/s")).toBeTruthy();
    expect(within(screen.getByRole("table", { name: "Machines now" })).getByText("5 kB/s / 7 kB/s")).toBeTruthy();
    const ranks = within(screen.getByRole("table", { name: "Ranks" }));
    expect(ranks.getAllByRole("row")).toHaveLength(3);
    expect(ranks.getByText("Dead")).toBeTruthy();
    expect(screen.getByRole("list", { name: "Differences between ranks" }).textContent).toContain("highest 1.5 (rank 1), 200 % above the lowest");
    expect(screen.getByText("3 more ranks in the run directory")).toBeTruthy();
    expect(screen.getByText("fp32")).toBeTruthy();
  });
});

describe("a measured speed-up", () => {
  const speedup = { ratio: 1.9, sentence: "1.9 × faster than PEFT with checkpointing, measured on this machine on 2026-11-16", model: "1.5b", method: "lora", precision: "bf16" };

  it("is said with the training time with and without", () => {
    render(<SpeedupNote plan={{ speedup, seconds: 600 } as never} />);
    expect(screen.getByText(speedup.sentence, { exact: false })).toBeTruthy();
    expect(document.body.textContent).toContain("Training time: about 10 m with GPU Bloom, about 19 m without.");
  });

  it("is absent where nobody measured", () => {
    const { container } = render(<SpeedupNote plan={{ speedup: null, seconds: 600 }} />);
    expect(container.innerHTML).toBe("");
  });
});

it("says how a checkpoint was trained, and nothing of one that nobody described", () => {
  const nothing = { training_seconds: null, parameters: null, trained_parameters: null, method: null, precision: null, optimizations: [] };
  expect(detailFacts({ ...nothing, training_seconds: 75, parameters: 7.6e9, trained_parameters: 40.4e6, precision: "bf16" })).toEqual([
    ["Training time", "1 m 15 s"],
    ["Trained parameters", "40.4 M of 7.6 B"],
    ["Precision", "bf16"],
  ]);
  expect(detailFacts(nothing)).toEqual([]);
});
