/** Services that rent out GPUs: which are connected, what runs there, what it costs, how much it may. */
import { queryOptions } from "@tanstack/react-query";
import { askJson } from "./ask";
import { queryClient } from "./query-client";

export type Capability = { can: boolean; reason: string | null };
export type CredentialField = { name: string; title: string; secret: boolean; required: boolean; hint: string };
export type Provider = {
  name: string;
  title: string;
  available: boolean;
  reason: string | null;
  connected: boolean;
  account: string | null;
  checkedAt: string | null;
  problem: string | null;
  page: string | null;
  fields: CredentialField[];
  capabilities: {
    runsUnattended: Capability;
    consoleLogs: Capability;
    livePrices: Capability;
    severalGpus: Capability;
    severalNodes: Capability;
    spot: Capability;
    longestSeconds: number | null;
  };
};
export type Providers = { items: Provider[]; storage: { ready: boolean; reason: string | null } };
export type Rental = {
  id: string;
  jobId: string;
  jobName: string;
  provider: string;
  gpu: string;
  gpus: number;
  region: string | null;
  state: string;
  hourly: number;
  billedSeconds: number;
  cost: number;
  startedAt: string | null;
  endedAt: string | null;
  page: string | null;
};
export type Spending = { currency: string; today: number; thisMonth: number; total: number; hourlyNow: number; byProvider: { provider: string; cost: number }[] };
export type Budget = {
  id: string;
  scope: "user" | "project" | "job";
  projectId: string | null;
  jobId: string | null;
  name: string;
  limit: number;
  period: "total" | "month";
  spent: number;
  warned: number[];
};
export type NewBudget = { scope: Budget["scope"]; projectId?: string; jobId?: string; limit: number; period: Budget["period"] };

const MOVING_EVERY = 10_000;

export const providersQuery = queryOptions({
  queryKey: ["providers"],
  queryFn: ({ signal }) => askJson<Providers>("GET", "/api/providers", undefined, signal),
});

export const rentalsQuery = (running: boolean) =>
  queryOptions({
    queryKey: ["rentals", { running }],
    queryFn: ({ signal }) => askJson<{ items: Rental[] }>("GET", `/api/rentals?running=${running}`, undefined, signal),
    refetchInterval: MOVING_EVERY,
  });

export const spendingQuery = queryOptions({
  queryKey: ["spending"],
  queryFn: ({ signal }) => askJson<Spending>("GET", "/api/spending", undefined, signal),
  refetchInterval: MOVING_EVERY,
});

export const budgetsQuery = queryOptions({
  queryKey: ["budgets"],
  queryFn: ({ signal }) => askJson<{ items: Budget[] }>("GET", "/api/budgets", undefined, signal),
  refetchInterval: MOVING_EVERY,
});

const at = (name: string) => `/api/providers/${encodeURIComponent(name)}`;

async function changed<T>(answer: Promise<T>): Promise<T> {
  const found = await answer;
  await queryClient.invalidateQueries({ queryKey: providersQuery.queryKey });
  return found;
}

/** What is sent is never given back by any address. */
export const connectProvider = (name: string, values: Record<string, string>) => changed(askJson<Provider>("PUT", `${at(name)}/credentials`, { values }));
export const disconnectProvider = (name: string) => changed(askJson<null>("DELETE", `${at(name)}/credentials`));
export const checkProvider = (name: string) => changed(askJson<Provider>("POST", `${at(name)}/check`));

const forgetBudgets = () => queryClient.invalidateQueries({ queryKey: budgetsQuery.queryKey });

export async function setBudget(body: NewBudget): Promise<Budget> {
  const budget = await askJson<Budget>("PUT", "/api/budgets", body);
  await forgetBudgets();
  return budget;
}

export async function removeBudget(id: string) {
  await askJson<null>("DELETE", `/api/budgets/${id}`);
  await forgetBudgets();
}
