// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { FormProvider, useForm } from "react-hook-form";
import { afterEach, describe, expect, it } from "vitest";
import { queryClient } from "@/api/client";
import type { PlanAnswer } from "@/api/types";
import { machinesQuery } from "@/api/jobs";
import { type JobFormValues, startingValues } from "@/forms/job-form";
import { CHEAPEST_NEXT, failoverBody } from "@/pages/offers/failover-fields";
import { serveFrom } from "@/test-server";
import { plannedNeeds, RentAccordion, type RentalChoice, WhereCard } from "./where-card";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const GIB = 2 ** 30;
const plan = { device: "cuda:0", parameters: 1e9, tokens_per_step: 4096, steps: 100, memory: { weights: 10.04 * GIB, gradients: 0, optimizer: 0, activations: 0, overhead: 0, limit_bytes: 0 }, memory_total_bytes: 10.04 * GIB, memory_limit_bytes: 22 * GIB };
const answer = { fits: true, machine: "vm", plan, options: [], reason: null } as unknown as PlanAnswer;

const span = (likely: number) => ({ low: likely, likely, high: likely });
const cost = { compute: span(2.5), storage: span(0), network: span(0), start_up: span(0.08), total: span(2.58) };
const a10 = {
  provider: "lambda",
  title: "Lambda",
  gpu: "A10",
  gpus: 1,
  memory_gb: 24,
  kind: "on_demand",
  region: null,
  hourly: span(1.29),
  cost,
  hours: span(2),
  wait_hours: span(0.1),
  relaunches: 0,
  availability: "immediate",
  unattended: true,
  interactive: false,
  features: [],
  cautions: [],
  assumed: [],
  stale: false,
  source: "Its page",
  read_on: "2026-11-01",
  recommended: true,
  reasons: [],
};

const toggle = () => userEvent.click(screen.getByText("Rent an instance"));

function show() {
  const choice: (RentalChoice | null)[] = [];
  const sent = serveFrom(({ path }) => {
    if (path === "/api/providers") return { body: { items: [{ name: "lambda", title: "Lambda", available: true, connected: true, capabilities: { switch_off: { can: true, reason: null } } }], storage: { ready: true, reason: null } } };
    if (path === "/api/machines") return { body: { items: [{ name: "vm", gpus: [], gpu_memory_bytes: [], host_memory_bytes: GIB }] } };
    return { body: { need: {}, offers: [a10], excluded: [], archetype: null, usual: null } };
  });
  const onTake = (next: RentalChoice | null) => void choice.push(next);
  render(
    <QueryClientProvider client={queryClient}>
      <RentAccordion answer={answer} onTake={onTake} />
    </QueryClientProvider>,
  );
  return { choice, sent };
}

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("knows from the plan how much memory and how much computing is needed, on any machine", () => {
  expect(plannedNeeds(answer)).toEqual({ memoryGb: 10.1, hours: null, operations: 6 * 1e9 * 4096 * 100 });
  expect(plannedNeeds(undefined)).toEqual({ memoryGb: null, hours: null });
});

function WhereForm() {
  const form = useForm<JobFormValues>({ defaultValues: { ...startingValues("p1"), gpu: "A100" } });
  return (
    <QueryClientProvider client={queryClient}>
      <FormProvider {...form}>
        <WhereCard answer={undefined} onTake={() => {}} />
      </FormProvider>
    </QueryClientProvider>
  );
}

const machinesWith = (gpu: string) => ({ items: [{ name: "vm", gpus: [gpu], gpu_memory_bytes: [], host_memory_bytes: GIB }] });
const chosenGpu = () => screen.getByLabelText<HTMLSelectElement>("GPU type").selectedOptions[0]?.text;

it("keeps the chosen GPU before the machines are known and while its machine is away", async () => {
  let machines = machinesWith("A100");
  serveFrom(() => ({ body: machines }));
  render(<WhereForm />);
  expect(chosenGpu()).toBe("A100");
  await screen.findByText("vm");
  expect(chosenGpu()).toBe("A100");
  machines = machinesWith("T4");
  await queryClient.refetchQueries({ queryKey: machinesQuery.queryKey });
  await screen.findByRole("option", { name: "T4" });
  expect(chosenGpu()).toBe("A100");
});

describe("the rental accordion", () => {
  it("asks nobody for offers, and rents nothing, while it is closed", () => {
    const { sent, choice } = show();
    expect(sent).toEqual([]);
    expect(choice).toEqual([]);
  });

  it("asks with what the plan says, and still runs here until an offer is chosen", async () => {
    const { sent, choice } = show();
    await toggle();
    await screen.findByRole("radio", { name: /Lambda · A10/ });
    expect(sent.find(({ path }) => path === "/api/offers")?.body).toMatchObject({ needs: { memory_gb: 10.1, operations: 6 * 1e9 * 4096 * 100 } });
    expect(choice.at(-1)).toEqual({ offer: null, budget: null, max_hours: null, ...failoverBody(CHEAPEST_NEXT) });
    // The plan is for a machine of this server: nothing about it is doubted here.
    expect(screen.queryByText(/may be slow or refuse/)).toBeNull();
  });

  it("takes the chosen offer with its limits, says when one is wrong, and takes nothing once it is closed again", async () => {
    const { choice } = show();
    await toggle();
    await userEvent.click(await screen.findByRole("radio", { name: /Lambda · A10/ }));
    await userEvent.type(screen.getByLabelText(/Budget/), "5");
    const offer = { provider: "lambda", gpu: "A10", gpus: 1, kind: "on_demand", region: null };
    await waitFor(() => expect(choice.at(-1)).toEqual({ offer, budget: 5, max_hours: null, ...failoverBody(CHEAPEST_NEXT) }));
    expect(screen.getByText(/a new plan is made for the instance you chose/)).toBeDefined();
    await userEvent.type(screen.getByLabelText(/Budget/), "x");
    await waitFor(() => expect(choice.at(-1)).toBe("wrong"));
    await userEvent.type(screen.getByLabelText(/Budget/), "{Backspace}");
    await waitFor(() => expect(choice.at(-1)).toEqual({ offer, budget: 5, max_hours: null, ...failoverBody(CHEAPEST_NEXT) }));
    await toggle();
    await waitFor(() => expect(choice.at(-1)).toBeNull());
    // Opened again, it has what was chosen and typed before.
    await toggle();
    await waitFor(() => expect(choice.at(-1)).toEqual({ offer, budget: 5, max_hours: null, ...failoverBody(CHEAPEST_NEXT) }));
  });
});
