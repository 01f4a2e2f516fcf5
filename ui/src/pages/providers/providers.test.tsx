// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { ReactNode } from "react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import type { Budget, Credit, Provider } from "@/api/providers";
import { serveFrom } from "@/test-server";
import { BudgetsCard } from "./budgets-card";
import { ConnectDialog } from "./connect-dialog";
import { CreditsCard } from "./credits-card";
import { capabilityRows, ProviderCard } from "./provider-card";
import { ReconcileButton } from "./rentals-card";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

const yes = { can: true, reason: null };
const capabilities = { runs_unattended: { can: false, reason: "Somebody has to open the notebook." }, live_prices: yes, several_gpus: yes, several_nodes: yes, spot: yes, switch_off: yes, longest_seconds: 86_400 };
const provider = (change: Partial<Provider> = {}): Provider => ({
  name: "lambda",
  title: "Lambda",
  available: true,
  reason: null,
  connected: false,
  account: null,
  checked_at: null,
  problem: null,
  page: "https://cloud.example/keys",
  fields: [
    { name: "api_key", title: "API key", secret: true, required: true, hint: "Under Settings." },
    { name: "region", title: "Region", secret: false, required: false, hint: "" },
  ],
  capabilities,
  store: null,
  ...change,
});
const show = (element: ReactNode) => render(<QueryClientProvider client={queryClient}>{element}</QueryClientProvider>);

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("says what a service cannot do, and why", () => {
  const [first, ...others] = capabilityRows(capabilities);
  expect(first).toEqual({ text: "Managed jobs", can: false, reason: "Somebody has to open the notebook." });
  expect(others.at(-1)?.text).toBe("Up to 1 d per session");
});

describe("connecting", () => {
  it("sends what was entered and nothing that was left empty", async () => {
    const sent = serveFrom(() => ({ body: provider({ connected: true, account: "ada" }) }));
    const onClose = vi.fn();
    show(<ConnectDialog provider={provider()} onClose={onClose} />);
    const key = screen.getByLabelText<HTMLInputElement>("API key");
    expect(key.type).toBe("password");
    await userEvent.type(key, " secret ");
    await userEvent.click(screen.getByRole("button", { name: "Connect" }));
    await waitFor(() => expect(onClose).toHaveBeenCalled());
    expect(sent[0]).toEqual({ method: "PUT", path: "/api/providers/lambda/credentials", body: { values: { api_key: "secret" } } });
  });

  it("shows a refusal at its field, or the service's sentence above", async () => {
    let body: object = { detail: "No.", code: "invalid", errors: [{ field: "values.api_key", message: "It has characters that credentials do not have." }] };
    serveFrom(() => ({ status: 422, body }));
    show(<ConnectDialog provider={provider()} onClose={() => undefined} />);
    await userEvent.click(screen.getByRole("button", { name: "Connect" }));
    expect(await screen.findByText("API key is required.")).toBeDefined();
    await userEvent.type(screen.getByLabelText("API key"), "ü");
    await userEvent.click(screen.getByRole("button", { name: "Connect" }));
    expect(await screen.findByText("It has characters that credentials do not have.")).toBeDefined();
    body = { detail: "Lambda does not know this key.", code: "bad_credentials" };
    await userEvent.type(screen.getByLabelText("API key"), "x");
    await userEvent.click(screen.getByRole("button", { name: "Connect" }));
    expect((await screen.findByRole("alert")).textContent).toBe("Lambda does not know this key.");
  });
});

it("names the account, what is wrong, and what can be done about it", async () => {
  const sent = serveFrom(() => ({ status: 204 }));
  show(<ProviderCard provider={provider({ connected: true, account: "ada@example.org", problem: "The key was revoked." })} opened={false} />);
  expect(screen.getByText(/Account: ada@example.org/)).toBeDefined();
  expect(screen.getByText("The key was revoked.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Disconnect Lambda" }));
  await userEvent.click(within(screen.getByRole("alertdialog")).getByRole("button", { name: "Disconnect" }));
  await waitFor(() => expect(sent.map(({ method, path }) => `${method} ${path}`)).toContain("DELETE /api/providers/lambda/credentials"));
});

it("offers no key where a service cannot be used, and says why", () => {
  show(<ProviderCard provider={provider({ available: false, reason: "SkyPilot is not installed." })} opened />);
  expect(screen.queryByRole("button")).toBeNull();
  expect(screen.getByText("SkyPilot is not installed.")).toBeDefined();
});

it("sets a budget for everything or for one project", async () => {
  const budget: Budget = { id: "b", scope: "project", project_id: "p", job_id: null, name: "Contracts", limit: 20, period: "total", spent: 17, warned: [50, 80] };
  const sent = serveFrom(({ method, path }) => ({ body: path === "/api/projects" ? { items: [{ id: "p", name: "Contracts" }], total: 1 } : method === "PUT" ? budget : { items: [budget] } }));
  show(<BudgetsCard />);
  expect((await screen.findByRole("progressbar")).getAttribute("aria-valuenow")).toBe("85");
  await userEvent.click(screen.getByRole("button", { name: "Set a budget" }));
  const form = within(screen.getByRole("form", { name: "Budget" }));
  await userEvent.click(form.getByRole("button", { name: "Set budget" }));
  expect(await form.findByText("Enter an amount, such as 50.")).toBeDefined();
  await form.findByRole("option", { name: "Contracts" });
  await userEvent.selectOptions(form.getByLabelText("Applies to"), "Contracts");
  await userEvent.type(form.getByLabelText("Amount, in US dollars"), "50");
  await userEvent.click(form.getByRole("button", { name: "Set budget" }));
  await waitFor(() => expect(sent.find(({ method }) => method === "PUT")?.body).toEqual({ scope: "project", project_id: "p", limit: 50, period: "month" }));
});

async function runCheck(response: object) {
  serveFrom(({ method }) => ({ body: method === "POST" ? response : { items: [provider()], storage: { ready: true, reason: null } } }));
  show(<ReconcileButton />);
  await userEvent.click(screen.getByRole("button", { name: "Terminate instances without a job" }));
  return screen.getByRole("status");
}

describe("the check for machines without a job", () => {
  it("names what was ended", async () => {
    const notice = await runCheck({ ended: [{ provider: "lambda", key: "bloom-1-a1", instance_id: "i" }], unseen: [] });
    await waitFor(() => expect(notice.textContent).toBe("1 instance had no job.bloom-1-a1 at Lambda was terminated."));
  });

  it("names the providers that it could not check", async () => {
    const notice = await runCheck({ ended: [], unseen: [{ provider: "lambda", reason: "It did not answer in time." }] });
    await waitFor(() => expect(notice.textContent).toBe("Lambda could not be checked: It did not answer in time."));
  });
});

describe("remaining credits", () => {
  const credit: Credit = { provider: "modal", title: "Modal", currency: "USD", amount: 30, stated_at: "2026-11-01T00:00:00Z", spent: 4.5, remaining: 25.5 };
  const providers = [
    { name: "modal", title: "Modal" },
    { name: "lambda", title: "Lambda" },
  ];

  it("are stated for a provider that has none yet", async () => {
    const sent = serveFrom(({ method }) => ({ body: method === "GET" ? { items: [credit], providers } : { ...credit, provider: "lambda", title: "Lambda", remaining: 12 } }));
    show(<CreditsCard />);
    expect(await screen.findByText("$25.50")).toBeDefined();
    expect(screen.getByText("$30 stated for 1 Nov 2026, $4.50 spent by your jobs since")).toBeDefined();
    await userEvent.click(screen.getByRole("button", { name: "Add a credit" }));
    expect([...screen.getByLabelText<HTMLSelectElement>("Provider").options].map(({ text }) => text)).toEqual(["Lambda"]);
    await userEvent.type(screen.getByLabelText("Credit left, in US dollars"), "12");
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(sent.some(({ method }) => method === "PUT")).toBe(true));
    expect(sent.find(({ method }) => method === "PUT")).toEqual({ method: "PUT", path: "/api/credits/lambda", body: { amount: 12, as_of: null } });
  });

  it("begin with what is left when they are changed", async () => {
    const sent = serveFrom(({ method }) => ({ body: method === "GET" ? { items: [credit], providers } : credit }));
    show(<CreditsCard />);
    await userEvent.click(await screen.findByRole("button", { name: "Change the credit at Modal" }));
    expect(screen.getByLabelText<HTMLInputElement>("Credit left, in US dollars").value).toBe("25.50");
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(sent.find(({ method }) => method === "PUT")?.body).toEqual({ amount: 25.5, as_of: null }));
  });
});
