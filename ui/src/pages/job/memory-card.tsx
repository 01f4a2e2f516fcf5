import { type Summary, readSummary } from "@/api/job-summary";
import { type Plan, readPlan } from "@/api/plan";
import type { Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import type { CurveStore } from "@/curves/curve-store";
import { useRecent } from "@/curves/recent";
import { Facts } from "@/pages/jobs/facts";
import { MemoryBars } from "@/pages/jobs/memory-bars";
import { countText, parametersText } from "@/text/numbers";
import { MeasuredStep } from "./measured-step";
import { type Prediction, differenceText, predictionsOf } from "./predictions";

/** Where the run's memory goes, and how well it was predicted. */
export function MemoryCard({ job, store }: { job: Job; store: CurveStore }) {
  const plan = readPlan(job.plan);
  const summary = readSummary(job);
  const tokensPerSecond = useRecent(store, "train/tokens_per_second");
  if (plan === null) return null;
  const predictions = predictionsOf(plan, summary, tokensPerSecond);
  const measured = Object.fromEntries(plan.memories.map(({ name }) => [name, predictions.find((row) => row.name.startsWith(name))?.measured ?? undefined]));
  const placement = typeof summary.facts.placement === "string" ? summary.facts.placement : plan.placementText;
  const isMarked = Object.values(measured).some((value) => value !== undefined);
  return (
    <Card className="h-full">
      <CardHeader title="Where memory lives" note={isMarked ? <MarkNote /> : "planned"} />
      <div className="grid gap-4">
        <MemoryBars memories={plan.memories} measured={measured} />
        <PredictionTable rows={predictions} />
        <MeasuredStep store={store} />
        <Facts facts={factsOf(job, plan, summary)} />
        {placement && <p className="text-xs text-faint">{placement}</p>}
      </div>
    </Card>
  );
}

function MarkNote() {
  return (
    <span className="flex items-center gap-1.5">
      <span aria-hidden className="h-3 w-0.5 rounded-full bg-white" />
      measured
    </span>
  );
}

function PredictionTable({ rows }: { rows: readonly Prediction[] }) {
  return (
    <table className="w-full text-xs">
      <caption className="sr-only">Planned and measured</caption>
      <thead>
        <tr className="text-dim">
          <th scope="col">
            <span className="sr-only">figure</span>
          </th>
          <th scope="col" className="pb-1 text-right font-[450]">
            planned
          </th>
          <th scope="col" className="pb-1 text-right font-[450]">
            measured
          </th>
          <th scope="col" className="pb-1 text-right font-[450]">
            <span className="sr-only">difference</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.name} className="border-t border-line">
            <th scope="row" className="py-1 text-left font-[450] text-dim">
              {row.name}
            </th>
            <td className="py-1 pl-2 text-right whitespace-nowrap">{row.text(row.planned)}</td>
            <td className="py-1 pl-2 text-right font-[560] whitespace-nowrap">{row.measured === null ? "–" : row.text(row.measured)}</td>
            <td className="py-1 pl-2 text-right whitespace-nowrap text-dim">{differenceText(row)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function factsOf(job: Job, plan: Plan, { facts }: Summary): [string, string][] {
  const rows: [string, string][] = [
    ["Device", plan.device === "cpu" ? "CPU" : (job.gpuType ?? "GPU")],
    ["Precision", plan.precision],
  ];
  if (plan.parameters !== null) rows.unshift(["Parameters", parametersText(plan.parameters)]);
  if (plan.tokensPerStep !== null) rows.push(["Tokens per step", countText(plan.tokensPerStep)]);
  if (typeof facts.compiled === "boolean") rows.push(["Compiled layers", facts.compiled ? "yes" : "no"]);
  if (typeof facts.host_optimizer === "string") rows.push(["Host optimizer", facts.host_optimizer]);
  return rows;
}
