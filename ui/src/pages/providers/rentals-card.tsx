import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ServerOff } from "lucide-react";
import { type Rental, rentalsQuery } from "@/api/providers";
import { Badge } from "@/components/badge";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";
import { gpuText } from "@/pages/offers/offer-words";
import { durationText } from "@/text/duration";
import { moneyText } from "@/text/money";
import { counted } from "@/text/numbers";
import { ForgottenButton } from "./forgotten-button";
import { useProviderTitle } from "./provider-titles";

/** Machines that cost money at this moment. */
export function RentalsCard({ connected }: { connected: boolean }) {
  const rentals = useQuery(rentalsQuery(true));
  const providerTitle = useProviderTitle();
  const columns: Column<Rental>[] = [
    {
      header: "Job",
      lead: true,
      cell: ({ jobId, jobName }) =>
        jobId === null ? (
          jobName
        ) : (
          <Link to="/jobs/$jobId" params={{ jobId }} className="font-[570] break-words underline-offset-3 hover:text-violet-soft hover:underline">
            {jobName}
          </Link>
        ),
    },
    { header: "Machine", cell: (rental) => [providerTitle(rental.provider), gpuText(rental), rental.region].filter(Boolean).join(" · ") },
    { header: "State", cell: ({ state }) => <Badge tone={state === "running" ? "good" : "teal"}>{state}</Badge> },
    { header: "An hour", end: true, cell: ({ hourly }) => moneyText(hourly) },
    { header: "Billed", end: true, cell: ({ billedSeconds }) => durationText(billedSeconds) },
    { header: "Cost", end: true, cell: ({ cost }) => moneyText(cost) },
    {
      header: "At the service",
      quiet: true,
      end: true,
      cell: ({ page, jobName }) =>
        page && (
          <a href={page} target="_blank" rel="noreferrer" aria-label={`Open the machine of ${jobName} at the service`} className="text-violet-soft underline-offset-3 hover:underline">
            Open
          </a>
        ),
    },
  ];
  return (
    <Card>
      <CardHeader title="Machines that run now" note={rentals.data && rentals.data.items.length > 0 && counted(rentals.data.items.length, "machine")}>
        {connected && <ForgottenButton />}
      </CardHeader>
      <Loaded query={rentals} skeleton={<SkeletonRows rows={2} />}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState icon={ServerOff} title="No rented machine runs." small>
              Nothing costs money now. Machines that no job owns are ended by themselves, every few minutes.
            </EmptyState>
          ) : (
            <DataTable label="Machines that run now" columns={columns} rows={items} rowKey={({ id }) => id} />
          )
        }
      </Loaded>
    </Card>
  );
}
