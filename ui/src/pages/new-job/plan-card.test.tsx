// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Plan, PlanAnswer } from "@/api/types";
import { PlanCard, type usePlan } from "./plan-card";

const memory = { weights: 2e9, gradients: 0, optimizer: 4e9, activations: 1e9, overhead: 1e9, limit_bytes: 10e9 };
const plan = {
  device: "cuda",
  precision: "bf16",
  precision_reason: "bf16: H200 supports it",
  placement_text: "All 4 layers: streamed from host memory, updated by the CPU.",
  memory,
  memory_total_bytes: 8e9,
  memory_limit_bytes: 10e9,
  host: { ...memory, weights: 90e9, limit_bytes: 128e9 },
  step_seconds: 3,
  phases: [
    { name: "forward", seconds: 1, compute: 0.5, link: 0.8, host: 1 },
    { name: "backward", seconds: 2, compute: 2, link: 0.25, host: 0 },
  ],
  limited_by: "the host optimizer",
  limits: ["A larger batch hides this wait."],
  parameters: 7e9,
  assumptions: [] as string[],
  steps: null,
  seconds: null,
  tokens_per_step: 8192,
  trained_parameters: 7e9,
  tokens_per_second: 4096,
} as Plan;

function show(answer: Partial<PlanAnswer>, given: { behind?: boolean; missing?: string } = {}) {
  const onTake = vi.fn();
  const data = { fits: true, reason: null, plan, machine: "box", needs: null, options: [], requested_machine: null, ...answer };
  const planned = { answer: { data, error: null, isFetching: false }, behind: given.behind ?? false } as unknown as ReturnType<typeof usePlan>;
  render(<PlanCard planned={planned} missing={given.missing ?? null} onTake={onTake} />);
  return onTake;
}

// On a wide screen the figures are open.
beforeEach(() => vi.stubGlobal("matchMedia", () => ({ matches: true })));

afterEach(cleanup);

it("shows both memories by kind, the step by phase, and what limits it", () => {
  show({});
  expect(screen.getByText("8 GB / 10 GB")).toBeDefined();
  expect(screen.getByText("96 GB / 128 GB")).toBeDefined();
  expect(screen.getByRole("row", { name: /weights 2 GB 90 GB/ })).toBeDefined();
  expect(screen.getByRole("img", { name: "forward 1 s, busy: GPU 500 ms, link 800 ms, host 1 s. backward 2 s, busy: GPU 2 s, link 250 ms." })).toBeDefined();
  expect(screen.getByText("The step time is limited by the host optimizer.").parentElement?.textContent).toContain("A larger batch hides this wait.");
});

it("shows no link where nothing crosses it", () => {
  show({ plan: { ...plan, device: "cpu", phases: [{ name: "forward", seconds: 1, compute: 1, link: 0, host: 0 }] } });
  expect(screen.getByRole("img", { name: "forward 1 s, busy: CPU 1 s." })).toBeDefined();
  expect(screen.queryByText("link")).toBeNull();
});

const smaller = { title: "Batch size: 4", changes: { batch_size: 4 }, gpu_type: null, gpus: null, host_memory: null, machine: "box", plan };
const larger = { ...smaller, title: "256 GB of host memory", changes: {}, gpu_type: "H200", gpus: 1, host_memory: 256 };
const needs = { gpu: memory, host: { ...memory, weights: 150e9, limit_bytes: 128e9 } };

it("says what fits and what does not, and takes up one of the settings that would", async () => {
  const onTake = show({ fits: false, plan: null, reason: "Too large; batch_size 4 would fit.", needs, options: [smaller, larger] });
  expect(screen.getByText("Too large; batch_size 4 would fit.")).toBeDefined();
  expect(screen.getByText("GPU memory").parentElement?.textContent).toBe("GPU memory8 GB of 10 GB, fits");
  expect(screen.getByText("Host memory").parentElement?.textContent).toBe("Host memory156 GB of 128 GB, 28 GB too much");
  expect(screen.getByText("another machine, 96 GB of host memory, about 4,096 tokens/s")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Apply: 256 GB of host memory" }));
  expect(onTake).toHaveBeenCalledWith(larger);
  expect(document.activeElement?.textContent).toBe("This job cannot run with these settings");
});

it("does not offer a change for an older form than the one in sight", () => {
  show({ fits: false, reason: "No.", plan: null, options: [smaller] }, { behind: true });
  expect(screen.getByRole("button", { name: "Apply: Batch size: 4" }).hasAttribute("disabled")).toBe(true);
});

it("plans a machine that is not connected", () => {
  const requested_machine = { machine: "H200, 1,536 GB host", reason: null, plan, needs: null, options: [] };
  show({ fits: false, reason: "This server has no GPU.", plan: null, requested_machine });
  expect(screen.getByText("This server has no GPU.")).toBeDefined();
  expect(screen.getByRole("heading", { name: "The model fits on H200, 1,536 GB host" })).toBeDefined();
  expect(screen.getByText("96 GB / 128 GB")).toBeDefined();
});

it("offers nothing where nothing would do, and asks for what is missing", () => {
  show({ fits: false, reason: "There is no file books.txt.", plan: null });
  expect(screen.queryByRole("button")).toBeNull();
  cleanup();
  show({}, { missing: "Enter the path of the model folder." });
  expect(screen.queryByText("This job fits")).toBeNull();
  expect(screen.getByText(/Enter the path of the model folder/)).toBeDefined();
});
