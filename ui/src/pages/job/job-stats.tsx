import { useEffect, useState } from "react";
import { readCost } from "@/api/job-cost";
import { readSummary } from "@/api/job-summary";
import { isResting } from "@/api/jobs";
import { readPlan } from "@/api/plan";
import type { Job } from "@/api/types";
import { type Stat, StatSummary } from "@/components/stat-summary";
import { durationText } from "@/text/duration";
import { moneyText } from "@/text/money";
import { countText, metricText } from "@/text/numbers";

const DASH = "–";

/** The figures of a run at a glance. */
export function JobStats({ job }: { job: Job }) {
  const summary = readSummary(job);
  const steps = summary.totalSteps ?? readPlan(job.plan)?.steps ?? null;
  const loss = summary.values["train/loss"];
  const evalLoss = summary.values["eval/loss"];
  const throughput = summary.values["train/tokens_per_second"];
  const stats: Stat[] = [
    { name: "Step", value: summary.step === null ? "0" : countText(summary.step), unit: steps === null ? undefined : `/ ${countText(steps)}` },
    { name: "Epoch", value: summary.epoch === null ? DASH : summary.epoch.toFixed(2), unit: summary.epochs === null ? undefined : `/ ${trimmed(summary.epochs)}` },
    useTimeStat(job, summary.etaSeconds),
    { name: "Loss", value: loss === undefined ? DASH : metricText(loss), unit: evalLoss === undefined ? undefined : `eval ${metricText(evalLoss)}` },
    { name: "Throughput", value: throughput === undefined ? DASH : countText(throughput), unit: throughput === undefined ? undefined : "tok/s" },
    { name: "Attempt", value: job.attempt === 0 ? DASH : countText(job.attempt), unit: restarts(summary.restartCount) },
  ];
  const cost = readCost(job);
  if (cost) stats.push({ name: "Cost so far", value: moneyText(cost.soFar), unit: cost.estimated ? `of about ${moneyText(cost.estimated.likely)}` : undefined });
  return <StatSummary label="Progress" stats={stats} />;
}

const restarts = (count: number) => (count === 0 ? undefined : `${count} ${count === 1 ? "restart" : "restarts"}`);
const trimmed = (epochs: number) => (Number.isInteger(epochs) ? String(epochs) : epochs.toFixed(2));

/** Seconds do not matter after the first minute, and would make the figure dance. */
const roughly = (seconds: number) => durationText(seconds < 60 ? seconds : Math.floor(seconds / 60) * 60);

/** Time left while it trains, time taken when it does not. */
function useTimeStat(job: Job, eta: number | null): Stat {
  const ended = isResting(job.status);
  const now = useNow(!ended && job.startTime !== null);
  const end = job.endTime ? Date.parse(job.endTime) : now;
  const seconds = job.startTime ? (end - Date.parse(job.startTime)) / 1000 : null;
  const taken = seconds === null ? null : durationText(seconds);
  if (ended) return { name: job.status === "paused" ? "Time since start" : "Time taken", value: taken ?? DASH };
  return { name: "Time left", value: eta === null ? DASH : durationText(eta), unit: seconds === null ? undefined : `after ${roughly(seconds)}` };
}

function useNow(ticking: boolean): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!ticking) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [ticking]);
  return now;
}
