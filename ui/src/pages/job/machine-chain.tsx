/** The machines of a job in the order of its attempts: where it ran, how each ended, and what each cost. */
import { useQuery } from "@tanstack/react-query";
import { jobRentalsQuery, type Rental, useProviderTitle } from "@/api/providers";
import type { Job } from "@/api/types";
import { LoadFailure } from "@/components/loaded";
import { Badge } from "@/components/notice";
import { gpuText } from "@/pages/offers/offer-selection";
import { durationText, moneyText } from "@/text/numbers";

const TONES: Record<Rental["state"], "good" | "teal" | "bad" | "neutral"> = { submitting: "teal", starting: "teal", running: "good", ended: "neutral", lost: "bad" };

/** "$1.20 billed, $1.31 estimated" once the provider's own bill is known. */
const costText = ({ cost, bill }: Pick<Rental, "cost" | "bill">) => (bill === null ? moneyText(cost) : `${moneyText(bill)} billed, ${moneyText(cost)} metered`);

export function MachineChain({ job }: { job: Pick<Job, "id" | "failover" | "error_message"> }) {
  const rentals = useQuery(jobRentalsQuery(job.id));
  const providerTitle = useProviderTitle();
  const machines = rentals.data?.items.toReversed() ?? [];
  if (machines.length === 0) return <LoadFailure query={rentals} className="mt-3.5" />;
  return (
    <section aria-label="Machines of this job" className="mt-3.5 border-t border-line pt-3">
      <h3 className="text-sm font-[590]">Machines</h3>
      <ol className="mt-1.5 grid gap-1.5 text-sm">
        {machines.map((machine) => (
          <li key={machine.id} className="grid gap-x-3 sm:grid-cols-[minmax(0,1fr)_auto]">
            <span className="flex min-w-0 flex-wrap items-center gap-x-2">
              <span>
                {machine.attempt}. {[providerTitle(machine.provider), gpuText(machine), machine.region].filter(Boolean).join(" · ")}
              </span>
              <Badge tone={TONES[machine.state]}>{machine.state}</Badge>
            </span>
            <span className="text-dim tabular-nums sm:text-right">
              {durationText(machine.billed_seconds)} · {costText(machine)}
            </span>
            {machine.detail && machine.detail !== job.error_message && <span className="min-w-0 wrap-anywhere text-xs text-dim sm:col-span-2">{machine.detail}</span>}
          </li>
        ))}
      </ol>
      {job.failover.length > 0 && (
        <p className="mt-2 text-xs text-dim">
          If this machine is not available or is lost, the job resumes on {job.failover.map((offer) => `${gpuText(offer)} at ${offer.title}`).join(", then ")}. One budget covers all machines.
        </p>
      )}
    </section>
  );
}
