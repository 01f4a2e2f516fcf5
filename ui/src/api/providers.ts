/** Cloud providers: connections, rentals, spending, remaining credits and budgets. */
import { queryOptions, useQuery } from "@tanstack/react-query";
import { authStateQuery } from "./auth";
import { answerOf, api, queryClient } from "./client";
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Provider = Schemas["ConnectionOut"];
export type Rental = Schemas["RentalOut"];
export type Spending = Schemas["SpendingOut"];
export type Budget = Schemas["BudgetOut"];
export type Credit = Schemas["CreditOut"];
type NewBudget = Schemas["BudgetIn"];

const MOVING_EVERY = 10_000;

export const providersQuery = queryOptions({
  queryKey: ["providers"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/providers", { signal })),
});

export const rentalsQuery = (running: boolean) =>
  queryOptions({
    queryKey: ["rentals", { running }],
    queryFn: ({ signal }) => answerOf(api.GET("/api/rentals", { params: { query: { running } }, signal })),
    refetchInterval: MOVING_EVERY,
  });

/** Every machine that was rented for a job, the newest first. */
export const jobRentalsQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["rentals", { jobId }],
    queryFn: ({ signal }) => answerOf(api.GET("/api/rentals", { params: { query: { job_id: jobId, limit: 100 } }, signal })),
    refetchInterval: MOVING_EVERY,
  });

export const spendingQuery = queryOptions({
  queryKey: ["spending"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/spending", { signal })),
  refetchInterval: MOVING_EVERY,
});

export const budgetsQuery = queryOptions({
  queryKey: ["budgets"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/budgets", { signal })),
  refetchInterval: MOVING_EVERY,
});

export const creditsQuery = queryOptions({
  queryKey: ["credits"],
  queryFn: ({ signal }) => answerOf(api.GET("/api/credits", { signal })),
});

const at = (provider: string) => ({ path: { provider } });

async function changed<T>(answer: Promise<T>): Promise<T> {
  const result = await answer;
  await queryClient.invalidateQueries({ queryKey: providersQuery.queryKey });
  return result;
}

/** What is sent is never given back by any address. */
export const connectProvider = (name: string, values: Record<string, string>) =>
  changed(answerOf(api.PUT("/api/providers/{provider}/credentials", { params: at(name), body: { values } })));
export const disconnectProvider = (name: string) => changed(answerOf(api.DELETE("/api/providers/{provider}/credentials", { params: at(name) })));
export const checkProvider = (name: string) => changed(answerOf(api.POST("/api/providers/{provider}/check", { params: at(name) })));

/** Ends machines at the person's services that no job owns; workers do the same every few minutes. */
export async function reconcileRentals() {
  const result = await answerOf(api.POST("/api/providers/reconcile"));
  await Promise.all([queryClient.invalidateQueries({ queryKey: ["rentals"] }), queryClient.invalidateQueries({ queryKey: spendingQuery.queryKey })]);
  return result;
}

const forgetBudgets = () => queryClient.invalidateQueries({ queryKey: budgetsQuery.queryKey });

export async function setBudget(body: NewBudget): Promise<Budget> {
  const budget = await answerOf(api.PUT("/api/budgets", { body }));
  await forgetBudgets();
  return budget;
}

export async function removeBudget(id: string) {
  await answerOf(api.DELETE("/api/budgets/{budget_id}", { params: { path: { budget_id: id } } }));
  await forgetBudgets();
}

/** Offers count with the credits. */
const forgetCredits = () => Promise.all([queryClient.invalidateQueries({ queryKey: creditsQuery.queryKey }), queryClient.invalidateQueries({ queryKey: ["offers"] })]);

export async function stateCredit(provider: string, body: Schemas["CreditIn"]): Promise<Credit> {
  const credit = await answerOf(api.PUT("/api/credits/{provider}", { params: at(provider), body }));
  await forgetCredits();
  return credit;
}

export async function removeCredit(provider: string) {
  await answerOf(api.DELETE("/api/credits/{provider}", { params: at(provider) }));
  await forgetCredits();
}

/** A service's name as it writes it itself; this machine has one, too. */
export function useProviderTitle() {
  // Over a folder of runs nothing is rented.
  const inFolder = Boolean(queryClient.getQueryData(authStateQuery.queryKey)?.folder);
  const providers = useQuery({ ...providersQuery, enabled: !inFolder });
  return (name: string) => (name === "local" ? "This machine" : (providers.data?.items.find((provider) => provider.name === name)?.title ?? name));
}
