/** The providers page: spending, connections, rentals, remaining credits and budgets. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { providersQuery, type Spending, spendingQuery, useProviderTitle } from "@/api/providers";
import { Button } from "@/components/button";
import { StatSummary } from "@/components/figures";
import { Loaded, SkeletonCards } from "@/components/loaded";
import { Notice, TextWithCode } from "@/components/notice";
import { safeNextPath } from "@/shell/address";
import { PageHeader, usePageTitle } from "@/shell/page";
import { useCurrentUser } from "@/shell/session";
import { moneyText } from "@/text/numbers";
import { BudgetsCard } from "./budgets-card";
import { CreditsCard } from "./credits-card";
import { ProviderCard } from "./provider-card";
import { RentalsCard } from "./rentals-card";
import { StorageCard } from "./storage-card";

const route = getRouteApi("/app/providers");

/** Services that rent out GPUs: connected or not, what runs there, what it costs and may cost. */
export function ProvidersPage() {
  usePageTitle("Providers");
  const { connect, back } = route.useSearch();
  const user = useCurrentUser();
  const providers = useQuery(providersQuery);
  const isReady = providers.data?.storage.ready ?? true;
  // Rentals stand above the providers once one is connected, and below them before.
  const connected = providers.data?.items.some((provider) => provider.connected) ?? false;
  return (
    <>
      <PageHeader title="Providers" note="Connect cloud providers to run jobs on rented GPUs. The provider bills you; GPU Bloom tracks the cost.">
        {back && (
          <Button asChild variant="primary">
            <Link to={safeNextPath(back)}>{back === "/script" ? "Back to the script" : "Go back"}</Link>
          </Button>
        )}
      </PageHeader>
      <SpendingSummary />
      {providers.data && !isReady && (
        <Notice tone="attention" className="mt-3.5">
          <b className="mr-2 font-[570]">A provider needs a storage bucket.</b>
          <span className="text-dim">
            <TextWithCode text={providers.data.storage.reason ?? ""} />
          </span>
        </Notice>
      )}
      {!isReady && user.role === "admin" && (
        <div className="mt-3.5">
          <StorageCard />
        </div>
      )}
      {connected && (
        <div className="mt-3.5">
          <RentalsCard connected />
        </div>
      )}
      <section aria-labelledby="services" className="mt-5">
        <h2 id="services" className="mb-2.5 text-[13px] font-[590]">
          Available providers
        </h2>
        <Loaded query={providers} skeleton={<SkeletonCards className="h-44" />}>
          {({ items }) => (
            <div className="grid items-start gap-3.5 sm:grid-cols-2 xl:grid-cols-3">
              {items.map((provider) => (
                <ProviderCard key={provider.name} provider={provider} opened={provider.name === connect && !provider.connected} />
              ))}
            </div>
          )}
        </Loaded>
      </section>
      <div className="mt-5 grid gap-3.5">
        {!connected && <RentalsCard connected={false} />}
        {isReady && user.role === "admin" && <StorageCard />}
        <div className="grid items-start gap-3.5 lg:grid-cols-2">
          <CreditsCard />
          <BudgetsCard />
        </div>
      </div>
    </>
  );
}

/** What rented machines have cost, and what those that run now cost by the hour. */
function SpendingSummary() {
  const spending = useQuery(spendingQuery);
  const providerTitle = useProviderTitle();
  const figure = (read: (spent: Spending) => number) => (spending.data ? moneyText(read(spending.data)) : spending.isError ? "–" : undefined);
  const shares = spending.data?.by_provider.filter(({ cost }) => cost > 0) ?? [];
  return (
    <>
      <StatSummary
        label="Spending"
        stats={[
          { name: "Now", value: figure(({ hourly_now: hourlyNow }) => hourlyNow), unit: "per hour" },
          { name: "Today", value: figure(({ today }) => today) },
          { name: "This month", value: figure(({ this_month: thisMonth }) => thisMonth) },
          { name: "Total", value: figure(({ total }) => total) },
        ]}
      />
      {shares.length > 0 && <p className="mt-2 text-xs text-dim">{shares.map(({ provider, cost }) => `${providerTitle(provider)} ${moneyText(cost)}`).join(" · ")}</p>}
    </>
  );
}
