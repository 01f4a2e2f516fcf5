/** Figures of a job: progress, time, speed and cost. */
import { ExternalLink } from "lucide-react";
import { lastValue } from "@/api/summary";
import { isResting } from "@/api/jobs";
import { useProviderTitle } from "@/api/providers";
import type { Cost, Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { Facts, type Stat, StatSummary } from "@/components/figures";
import { useNow } from "@/components/time-ago";
import { gpuText } from "@/pages/offers/offer-selection";
import { BudgetBar } from "@/pages/providers/budgets-card";
import { counted, countText, durationText, metricText, moneyRange, moneyText } from "@/text/numbers";
import { epochText } from "@/text/run-words";
import { MachineChain } from "./machine-chain";

const DASH = "–";

/** The figures of a run at a glance. */
export function JobStats({ job }: { job: Job }) {
  const { summary } = job;
  const { cost } = summary;
  const steps = summary.total_steps ?? job.plan?.steps ?? null;
  const loss = lastValue(summary, "train/loss");
  const evalLoss = lastValue(summary, "eval/loss");
  const evalStep = summary.values["eval/loss"]?.step ?? null;
  const throughput = lastValue(summary, "train/tokens_per_second");
  const samples = lastValue(summary, "train/samples_per_second");
  const stats: Stat[] = [
    { name: epochName(summary), value: summary.step === null ? "0" : countText(summary.step), unit: steps === null ? "steps" : `of ${counted(steps, "step")}` },
    useTimeStat(job, summary.eta_seconds),
    { name: "Train loss, last step", value: loss === undefined ? DASH : metricText(loss) },
    { name: evalStep === null ? "Eval loss" : `Eval loss, step ${countText(evalStep)}`, value: evalLoss === undefined ? DASH : metricText(evalLoss) },
    throughput === undefined && samples !== undefined
      ? { name: "Throughput", value: metricText(samples), unit: "samples/s" }
      : { name: "Throughput", value: throughput === undefined ? DASH : countText(throughput), unit: throughput === undefined ? undefined : "tok/s" },
    cost
      ? { name: "Cost so far", value: moneyText(cost.so_far), unit: cost.estimated ? `of about ${moneyText(cost.estimated.likely)}` : undefined }
      : { name: "Attempt", value: job.attempt === 0 ? DASH : countText(job.attempt), unit: restarts(summary.restart_count) },
  ];
  return <StatSummary label="Progress" stats={stats} />;
}

const restarts = (count: number) => (count === 0 ? undefined : `${count} ${count === 1 ? "restart" : "restarts"}`);

/** "Epoch 1.25 of 3"; of many epochs the fraction says nothing. The tile has room for one line. */
export function epochName({ epoch, epochs }: Pick<Job["summary"], "epoch" | "epochs">): string {
  if (epoch === null) return "Training";
  return `Epoch ${epochText(epoch)}${epochs === null ? "" : ` of ${epochText(epochs)}`}`;
}

/** Seconds do not matter after the first minute, and would make the figure dance. */
const roughly = (seconds: number) => durationText(seconds < 60 ? seconds : Math.floor(seconds / 60) * 60);

type Times = Pick<Job, "start_time" | "end_time" | "active_seconds" | "active_since">;

/** How long a run has held a machine: without queue and pauses. Of a run of an earlier version, from its start to its end. */
export function takenSeconds({ start_time: start, end_time: end, active_seconds: active, active_since: since }: Times, now = Date.now()): number | null {
  if (active > 0 || since !== null) return active + (since === null ? 0 : Math.max(0, now - Date.parse(since)) / 1000);
  return start ? ((end ? Date.parse(end) : now) - Date.parse(start)) / 1000 : null;
}

/** Time left while it trains, time taken when it does not. */
function useTimeStat(job: Job, eta: number | null): Stat {
  const ended = isResting(job.status);
  const now = useNow(!ended && job.start_time !== null);
  const seconds = takenSeconds(job, now);
  if (ended) return { name: "Time taken", value: seconds === null ? DASH : durationText(seconds) };
  return { name: "Time left", value: eta === null ? DASH : roughly(eta), unit: seconds === null ? undefined : `${roughly(seconds)} elapsed` };
}

/** What a job on a rented machine costs: until now, by the hour, probably in all, and at most. Absent for others. */
export function CostCard({ job }: { job: Job }) {
  const { cost } = job.summary;
  const providerTitle = useProviderTitle();
  if (cost === null) return null;
  const machine = [cost.provider && providerTitle(cost.provider), cost.gpu && gpuText({ gpu: cost.gpu, gpus: cost.gpus ?? 1 }), cost.region].filter(Boolean).join(" · ");
  return (
    <Card aria-label="Cost">
      <CardHeader title="Cost" note={machine} />
      <div className="grid gap-x-10 gap-y-4 sm:max-lg:grid-cols-2">
        <div>
          <p className="mb-2 flex flex-wrap items-baseline gap-x-2">
            <b className="text-2xl font-[620] tracking-[-0.02em] tabular-nums">{moneyText(cost.so_far)}</b>
            <span className="text-sm text-dim">{sinceText(cost)}</span>
          </p>
          {cost.limit === null ? (
            <p className="text-xs text-dim">No budget is set for this job.</p>
          ) : (
            <>
              <BudgetBar label="Spent from this job’s budget" spent={cost.so_far} limit={cost.limit} />
              <p aria-hidden className="relative mt-1 h-4 text-2xs text-faint tabular-nums">
                <span className="absolute left-1/2 -translate-x-1/2">50 %</span>
                <span className="absolute left-[80%] -translate-x-1/2">80 %</span>
                <span className="absolute right-0">{moneyText(cost.limit)}</span>
              </p>
              <p className="mt-1 text-xs text-dim">At {moneyText(cost.limit)} the job saves a checkpoint and then pauses.</p>
            </>
          )}
        </div>
        <div>
          <Facts
            facts={[
              ["Hourly price", moneyText(cost.hourly)],
              ["Billed time", durationText(cost.billed_seconds)],
              ["Expected total cost", cost.estimated ? moneyRange(cost.estimated) : "unknown"],
              ["Instance", cost.running ? "billed now" : "not billed"],
              ...(job.offer?.store ? ([["Files go through", job.offer.store.title]] as const) : []),
            ]}
          />
          {cost.page && (
            <a href={cost.page} target="_blank" rel="noreferrer" className="mt-2 inline-flex items-center gap-1 text-xs text-violet-soft underline-offset-3 hover:underline">
              View the instance at {providerTitle(cost.provider ?? "")}
              <ExternalLink aria-hidden className="size-3.5" />
            </a>
          )}
        </div>
      </div>
      <MachineChain job={job} />
    </Card>
  );
}

const sinceText = ({ running, limit }: Cost) => `${running ? "so far" : "in total"}${limit === null ? "" : `, budget ${moneyText(limit)}`}`;
