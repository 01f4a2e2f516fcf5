// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { cleanup, configure, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { afterEach, describe, expect, it } from "vitest";
import { queryClient } from "@/api/client";
import type { Provider } from "@/api/providers";
import type { Offer } from "@/api/scripts";
import type { Machine } from "@/api/types";
import { serveFrom } from "@/test-server";
import { byReason, localCautions, OfferPicker } from "./offer-picker";
import { bestOfEach, creditText, hoursRange, keyOf, LOCAL, offerLine, resolve, useOfferSelection } from "./offer-selection";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const span = (likely: number) => ({ low: likely / 2, likely, high: likely * 2 });
const cost = { compute: span(2), storage: span(0), network: span(0), start_up: span(0.1), total: span(2.1) };

const offer = (change: Partial<Offer>): Offer => ({
  provider: "lambda",
  title: "Lambda",
  gpu: "A10",
  gpus: 1,
  memory_gb: 24,
  kind: "on_demand",
  region: null,
  hourly: { low: 0.95, likely: 0.95, high: 0.95 },
  cost,
  credit: null,
  hours: span(3),
  wait_hours: span(0.1),
  relaunches: 0,
  availability: "unknown",
  unattended: true,
  interactive: false,
  features: [],
  cautions: [],
  assumed: [],
  stale: false,
  source: "Its page",
  read_on: "2026-11-01",
  recommended: false,
  reasons: [],
  store: null,
  limits: { budget: 4.2, max_hours: 6 },
  ...change,
});

const provider = (name: string, connected: boolean): Provider => {
  const yes = { can: true, reason: null };
  const capabilities = { runs_unattended: yes, live_prices: yes, several_gpus: yes, several_nodes: yes, spot: yes, switch_off: yes, longest_seconds: null };
  return { name, title: name, available: true, reason: null, connected, account: null, checked_at: null, problem: null, page: "https://cloud.example", fields: [], capabilities, store: null };
};

const modal = offer({ provider: "modal", title: "Modal", recommended: true, reasons: ["Starting fast counts."], kind: "per_second", stale: true, cautions: ["Cores cost extra."] });
const a10 = offer({});
const h100 = offer({ gpu: "H100", cost: { ...cost, total: span(9) } });

describe("the selected offer", () => {
  const offers = [modal, a10, h100];

  it("is the recommended one where it is connected, and this machine otherwise", () => {
    expect(resolve(null, null, offers, [provider("modal", true)])).toBe(modal);
    expect(resolve(null, null, offers, [provider("modal", false)])).toBe(LOCAL);
    expect(resolve(null, null, [], [])).toBe(LOCAL);
  });

  it("is what a person picked, for as long as it is offered", () => {
    expect(resolve(keyOf(h100), null, offers, [])).toBe(h100);
    expect(resolve(keyOf(h100), null, [modal], [provider("modal", true)])).toBe(modal);
    expect(resolve(LOCAL, null, offers, [provider("modal", true)])).toBe(LOCAL);
  });

  it("is what a template was made for, before what is recommended", () => {
    expect(resolve(null, { provider: "lambda", gpu: "H100" }, offers, [provider("modal", true)])).toBe(h100);
    expect(resolve(null, { provider: "lambda", gpu: "B200" }, offers, [])).toBe(a10);
    expect(resolve(null, { provider: "local", gpu: null }, offers, [provider("modal", true)])).toBe(LOCAL);
  });
});

it("says on one line what an offer costs, takes and means", () => {
  expect(offerLine(offer({ relaunches: 2, availability: "queued" }))).toBe("$0.95 / h on demand · takes about 3 h · starts in about 6 m · may have to wait in a queue · the job will restart 2 times from a checkpoint");
});

it("says how long a job takes, once where both ends are the same", () => {
  expect(hoursRange({ low: 1, likely: 2, high: 3 })).toBe("1 h to 3 h");
  expect(hoursRange({ low: 0.00001, likely: 0.00001, high: 0.00002 })).toBe("under 1 s");
});

it("says what a credit covers", () => {
  expect(creditText(a10)).toBeNull();
  expect(creditText(offer({ credit: { remaining: 50, covered: span(2), to_pay: { low: 0, likely: 0, high: 0 } } }))).toBe("covered by credit");
  expect(creditText(offer({ credit: { remaining: 1.5, covered: { low: 1, likely: 1.5, high: 1.5 }, to_pay: { low: 0, likely: 0.6, high: 2.7 } } }))).toBe("$1.50 covered by credit");
});

it("shows the best of each service first", () => {
  expect(bestOfEach([modal, a10, h100])).toEqual([modal, a10]);
});

it("gathers what is not offered by its reason", () => {
  const reason = "T4 cannot compute in bfloat16.";
  const excluded = [
    { provider: "modal", title: "Modal", gpu: "T4", gpus: 1, kind: "per_second" as const, reason },
    { provider: "colab", title: "Colab", gpu: "T4", gpus: 1, kind: "free" as const, reason },
    { provider: "colab", title: "Colab", gpu: "T4", gpus: 1, kind: "monthly_units" as const, reason },
  ];
  expect(byReason(excluded)).toEqual([[reason, ["Modal T4", "Colab T4"]]]);
});

const machine = (gigabytes: number[]) => ({ gpu_memory_bytes: gigabytes.map((size) => size * 2 ** 30) }) as Machine;

it("says what speaks against this machine", () => {
  expect(localCautions([], 8)[0]).toContain("No worker");
  expect(localCautions([machine([])], 8)[0]).toContain("no GPU");
  expect(localCautions([machine([])], null)).toEqual([]);
  expect(localCautions([machine([16])], 24)).toEqual(["The largest GPU of this machine has 16 GB. The job needs about 24 GB."]);
  expect(localCautions([machine([24])], 24)).toEqual([]);
});

describe("the cards", () => {
  const needs = { memory_gb: 12, hours: 3 };
  const Picker = () => {
    const [picked, pick] = useState<string | null>(null);
    return <OfferPicker selection={useOfferSelection({ needs }, { picked, preferred: null }, pick)} memoryGb={12} back="/script" waiting="" />;
  };

  function show(connected: string[], offered = () => [modal, a10, h100]) {
    const sent = serveFrom(({ path }) => {
      if (path === "/api/providers") return { body: { items: ["modal", "lambda", "skypilot"].map((name) => provider(name, connected.includes(name))), storage: { ready: false, reason: "Set BLOOM_BUCKET." } } };
      if (path === "/api/machines") return { body: { items: [] } };
      return { body: { need: {}, offers: offered(), excluded: [], archetype: null, usual: null } };
    });
    const root = createRootRoute();
    const routes = ["/", "/providers"].map((path) => createRoute({ getParentRoute: () => root, path, component: path === "/" ? Picker : () => null }));
    const router = createRouter({ routeTree: root.addChildren(routes), history: createMemoryHistory({ initialEntries: ["/"] }) });
    render(
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
      </QueryClientProvider>,
    );
    return { sent, router };
  }

  afterEach(() => {
    cleanup();
    queryClient.clear();
  });

  it("show reasons, cautions and the date of the price; others are a click away", async () => {
    show(["modal"]);
    const best = await screen.findByRole<HTMLInputElement>("radio", { name: "Modal · A10 $1.05–4.20" });
    expect(best.checked).toBe(true);
    for (const text of ["Starting fast counts.", "Cores cost extra.", "recommended"]) expect(screen.getByText(text)).toBeDefined();
    expect(screen.getAllByText("price as of 1 Nov 2026").length).toBe(2);
    expect(screen.getByText(/Set BLOOM_BUCKET/)).toBeDefined();
    await userEvent.click(screen.getByRole("button", { name: "Show all 3 offers" }));
    await userEvent.click(screen.getByRole("radio", { name: /Lambda · H100/ }));
    expect(screen.getByRole<HTMLInputElement>("radio", { name: /Lambda · H100/ }).checked).toBe(true);
  });

  it("say what is selected instead of an offer that is gone", async () => {
    let offered = [modal, a10];
    show([], () => offered);
    await userEvent.click(await screen.findByRole("radio", { name: /Lambda · A10/ }));
    offered = [modal];
    await queryClient.refetchQueries({ queryKey: ["offers"] });
    expect(await screen.findByText(/The offer you chose no longer meets .* This machine is selected instead\./)).toBeDefined();
  });

  it("lead to the page where a service is connected, and say where to come back to", async () => {
    const { router } = show([]);
    await userEvent.click(await screen.findByRole("link", { name: "Connect lambda" }));
    expect(router.state.location.href).toBe("/providers?connect=lambda&back=%2Fscript");
  });

  it("ask for clouds behind SkyPilot only where that is connected", async () => {
    const { sent } = show(["skypilot"]);
    await screen.findByRole("radio", { name: /Modal/ });
    expect(sent.filter(({ path }) => path === "/api/offers").at(-1)?.body).toMatchObject({ needs, constraints: { engines: ["skypilot"] } });
  });
});
