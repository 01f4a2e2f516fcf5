import { useQuery } from "@tanstack/react-query";
import { Link, getRouteApi } from "@tanstack/react-router";
import { providersQuery } from "@/api/providers";
import { Button } from "@/components/button";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { Skeleton } from "@/components/skeleton";
import { safeNextPath } from "@/shell/next-path";
import { PageHeader } from "@/shell/page-header";
import { usePageTitle } from "@/shell/use-page-title";
import { BudgetsCard } from "./budgets-card";
import { ProviderCard } from "./provider-card";
import { RentalsCard } from "./rentals-card";
import { SpendingSummary } from "./spending-summary";

const route = getRouteApi("/app/providers");

/** Services that rent out GPUs: connected or not, what runs there, what it costs and may cost. */
export function ProvidersPage() {
  usePageTitle("Providers");
  const { connect, back } = route.useSearch();
  const providers = useQuery(providersQuery);
  // Whoever rents looks for what it costs; whoever does not, for where.
  const connected = providers.data?.items.some((provider) => provider.connected) ?? false;
  return (
    <>
      <PageHeader title="Providers" note="Where jobs run besides this machine. You pay the service; GPU Bloom counts along.">
        {back && (
          <Button asChild variant="primary">
            <Link to={safeNextPath(back)}>{back === "/script" ? "Back to the script" : "Go back"}</Link>
          </Button>
        )}
      </PageHeader>
      <SpendingSummary />
      {providers.data && !providers.data.storage.ready && (
        <Notice tone="attention" className="mt-3.5">
          <b className="mr-2 font-[570]">No bucket yet.</b>
          <span className="text-dim">{providers.data.storage.reason} Any S3-compatible one will do: files and checkpoints travel through it.</span>
        </Notice>
      )}
      {connected && (
        <div className="mt-3.5">
          <RentalsCard connected />
        </div>
      )}
      <section aria-labelledby="services" className="mt-5">
        <h2 id="services" className="mb-2.5 text-[13px] font-[590]">
          Services
        </h2>
        <Loaded query={providers} skeleton={<CardSkeletons />}>
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
        <BudgetsCard />
      </div>
    </>
  );
}

function CardSkeletons() {
  return (
    <div className="grid gap-3.5 sm:grid-cols-2 xl:grid-cols-3">
      <Skeleton className="h-44 rounded-card" />
      <Skeleton className="h-44 rounded-card" />
      <Skeleton className="h-44 rounded-card" />
    </div>
  );
}
