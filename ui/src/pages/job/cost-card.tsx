import { ExternalLink } from "lucide-react";
import { type Cost, readCost } from "@/api/job-cost";
import type { Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/pages/jobs/facts";
import { gpuText } from "@/pages/offers/offer-words";
import { BudgetBar } from "@/pages/providers/budget-bar";
import { useProviderTitle } from "@/pages/providers/provider-titles";
import { durationText } from "@/text/duration";
import { moneyRange, moneyText } from "@/text/money";

/** What a job on a rented machine costs: until now, by the hour, probably in all, and at most. Absent for others. */
export function CostCard({ job }: { job: Job }) {
  const cost = readCost(job);
  const providerTitle = useProviderTitle();
  if (cost === null) return null;
  const machine = [providerTitle(cost.provider), cost.gpu && gpuText({ gpu: cost.gpu, gpus: cost.gpus }), cost.region].filter(Boolean).join(" · ");
  return (
    <Card aria-label="Cost" className="mt-3.5">
      <CardHeader title="Cost" note={machine} />
      <div className="grid gap-x-10 gap-y-4 sm:grid-cols-2">
        <div>
          <p className="mb-2 flex flex-wrap items-baseline gap-x-2">
            <b className="text-2xl font-[620] tracking-[-0.02em] tabular-nums">{moneyText(cost.soFar)}</b>
            <span className="text-sm text-dim">{sinceText(cost)}</span>
          </p>
          {cost.limit === null ? (
            <p className="text-xs text-dim">No budget is set for this job.</p>
          ) : (
            <>
              <BudgetBar label="Spent of this job’s budget" spent={cost.soFar} limit={cost.limit} />
              <p aria-hidden className="relative mt-1 h-4 text-2xs text-faint tabular-nums">
                <span className="absolute left-1/2 -translate-x-1/2">50 %</span>
                <span className="absolute left-[80%] -translate-x-1/2">80 %</span>
                <span className="absolute right-0">{moneyText(cost.limit)}</span>
              </p>
              <p className="mt-1 text-xs text-dim">At {moneyText(cost.limit)} it saves a checkpoint, then pauses.</p>
            </>
          )}
        </div>
        <div>
          <Facts
            facts={[
              ["An hour", moneyText(cost.hourly)],
              ["Billed until now", durationText(cost.billedSeconds)],
              ["Expected in all", cost.estimated ? moneyRange(cost.estimated) : "not known"],
              ["Machine", cost.running ? "is billed now" : "is not billed"],
            ]}
          />
          {cost.detail && <p className="mt-2 text-xs break-words text-faint">{cost.detail}</p>}
          {cost.page && (
            <a href={cost.page} target="_blank" rel="noreferrer" className="mt-2 inline-flex items-center gap-1 text-xs text-violet-soft underline-offset-3 hover:underline">
              The machine at {providerTitle(cost.provider)}
              <ExternalLink aria-hidden className="size-3.5" />
            </a>
          )}
        </div>
      </div>
    </Card>
  );
}

const sinceText = ({ running, limit }: Cost) => `${running ? "so far" : "in all until now"}${limit === null ? "" : `, of at most ${moneyText(limit)}`}`;
