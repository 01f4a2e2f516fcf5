/** Rented machines, and the button that ends machines without a job. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ServerOff } from "lucide-react";
import { useState } from "react";
import { sentenceOf } from "@/api/problem";
import { reconcileRentals, type Rental, rentalsQuery, useProviderTitle } from "@/api/providers";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Badge, Notice } from "@/components/notice";
import { gpuText } from "@/pages/offers/offer-selection";
import { counted, durationText, moneyText } from "@/text/numbers";

/** Machines that cost money at this moment. */
export function RentalsCard({ connected }: { connected: boolean }) {
  const rentals = useQuery(rentalsQuery(true));
  const providerTitle = useProviderTitle();
  const columns: Column<Rental>[] = [
    {
      header: "Job",
      lead: true,
      cell: ({ job_id: jobId, job_name: jobName }) =>
        jobId === null ? (
          jobName
        ) : (
          <Link to="/jobs/$jobId" params={{ jobId }} className="font-[570] wrap-anywhere underline-offset-3 hover:text-violet-soft hover:underline">
            {jobName}
          </Link>
        ),
    },
    { header: "Instance", cell: (rental) => [providerTitle(rental.provider), gpuText(rental), rental.region].filter(Boolean).join(" · ") },
    { header: "State", cell: ({ state }) => <Badge tone={state === "running" ? "good" : "teal"}>{state}</Badge> },
    { header: "Per hour", end: true, cell: ({ hourly }) => moneyText(hourly) },
    { header: "Billed time", end: true, cell: ({ billed_seconds: billedSeconds }) => durationText(billedSeconds) },
    { header: "Cost", end: true, cell: ({ cost }) => moneyText(cost) },
    {
      header: "Provider page",
      quiet: true,
      end: true,
      cell: ({ page, job_name: jobName }) =>
        page && (
          <a href={page} target="_blank" rel="noreferrer" aria-label={`Open the instance of ${jobName} at the provider`} className="text-violet-soft underline-offset-3 hover:underline">
            Open
          </a>
        ),
    },
  ];
  return (
    <Card>
      <CardHeader title="Running instances" note={rentals.data && rentals.data.items.length > 0 && counted(rentals.data.items.length, "instance")}>
        {connected && <ReconcileButton />}
      </CardHeader>
      <Loaded query={rentals} skeleton={<SkeletonRows rows={2} />}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState icon={ServerOff} title="No running instances." small>
              You are not billed for any instance now. Every few minutes, GPU Bloom terminates instances that have no job.
            </EmptyState>
          ) : (
            <DataTable label="Running instances" columns={columns} rows={items} rowKey={({ id }) => id} />
          )
        }
      </Loaded>
    </Card>
  );
}

type CheckResult = { tone: "good" | "bad"; lines: string[] };

/** Ends rented machines without a job at once, instead of waiting for the worker; names the providers that did not answer. */
export function ReconcileButton() {
  const providerTitle = useProviderTitle();
  const [pending, setPending] = useState(false);
  const [result, setResult] = useState<CheckResult | null>(null);

  async function check() {
    setPending(true);
    setResult(null);
    try {
      const { ended, unseen } = await reconcileRentals();
      const blind = unseen.map(({ provider, reason }) => `${providerTitle(provider)} could not be checked: ${reason}`);
      const gone = ended.map(({ provider, key }) => `${key} at ${providerTitle(provider)} was terminated.`);
      const first = ended.length > 0 ? `${counted(ended.length, "instance")} had no job.` : unseen.length > 0 ? null : "Every running instance has a job.";
      setResult({ tone: unseen.length > 0 ? "bad" : "good", lines: [...(first ? [first] : []), ...gone, ...blind] });
    } catch (error) {
      setResult({ tone: "bad", lines: [sentenceOf(error)] });
    } finally {
      setPending(false);
    }
  }

  return (
    <>
      <Button size="small" pending={pending} onClick={() => void check()}>
        Terminate instances without a job
      </Button>
      <div role="status" className="w-full">
        {result && (
          <Notice tone={result.tone} className="grid gap-1 text-sm wrap-anywhere">
            {result.lines.map((line) => (
              <p key={line}>{line}</p>
            ))}
          </Notice>
        )}
      </div>
    </>
  );
}
