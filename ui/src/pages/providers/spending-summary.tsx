import { useQuery } from "@tanstack/react-query";
import { type Spending, spendingQuery } from "@/api/providers";
import { StatSummary } from "@/components/stat-summary";
import { moneyText } from "@/text/money";
import { useProviderTitle } from "./provider-titles";

/** What rented machines have cost, and what those that run now cost by the hour. */
export function SpendingSummary() {
  const spending = useQuery(spendingQuery);
  const providerTitle = useProviderTitle();
  const figure = (read: (spent: Spending) => number) => (spending.data ? moneyText(read(spending.data)) : spending.isError ? "–" : undefined);
  const shares = spending.data?.byProvider.filter(({ cost }) => cost > 0) ?? [];
  return (
    <>
      <StatSummary
        label="Spending"
        stats={[
          { name: "Now", value: figure(({ hourlyNow }) => hourlyNow), unit: "an hour" },
          { name: "Today", value: figure(({ today }) => today) },
          { name: "This month", value: figure(({ thisMonth }) => thisMonth) },
          { name: "In all", value: figure(({ total }) => total) },
        ]}
      />
      {shares.length > 0 && <p className="mt-2 text-xs text-dim">{shares.map(({ provider, cost }) => `${providerTitle(provider)} ${moneyText(cost)}`).join(" · ")}</p>}
    </>
  );
}
