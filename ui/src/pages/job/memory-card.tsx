/** Memory and step time of a job, planned and measured. */
import { lastTelemetry, lastValue, number } from "@/api/summary";
import { memoriesOf, type MemoryUse } from "@/api/plan";
import type { Job, Plan, RunSummary } from "@/api/types";
import { ENGINE_MEMORY, STEP_PARTS } from "@/charts/chart-spec";
import { type CurveStore, useRecent } from "@/charts/curve-store";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/components/figures";
import { MemoryBars } from "@/pages/jobs/memory-bars";
import { bytesText, countText, moneyText, parametersText, secondsText } from "@/text/numbers";

type Prediction = { name: string; planned: number; measured: number | null; text: (value: number) => string };

/** The run plans again where it happens, on what it measures there; its own figures go before the job's. */
export function predictionsOf(plan: Plan, summary: RunSummary, tokensPerSecond: number | null): Prediction[] {
  const { facts } = summary;
  const predictions: Prediction[] = memoriesOf(plan).map((memory) => memoryPrediction(plan, memory, summary));
  const stepTokens = number(facts.tokens_per_step) ?? plan.tokens_per_step;
  const seconds = number(facts.planned_step_seconds) ?? (plan.step_seconds || null);
  if (seconds !== null) predictions.push({ name: "Step time", planned: seconds, measured: stepTokens && tokensPerSecond ? stepTokens / tokensPerSecond : null, text: secondsText });
  const speed = seconds !== null && stepTokens !== null ? stepTokens / seconds : plan.tokens_per_second;
  if (speed !== null) predictions.push({ name: "Tokens per second", planned: speed, measured: tokensPerSecond, text: countText });
  return predictions;
}

function memoryPrediction(plan: Plan, memory: MemoryUse, summary: RunSummary): Prediction {
  const { facts } = summary;
  const row = { name: `${memory.name} memory`, text: bytesText };
  const reported = lastValue(summary, ENGINE_MEMORY[memory.name]);
  if (memory.name === "Host") {
    return { ...row, planned: number(facts.planned_host_bytes) ?? memory.total, measured: reported ?? lastTelemetry(summary, "process/ram") };
  }
  const reserved = number(facts.planned_gpu_bytes) ?? plan.gpu_reserved_bytes;
  if (reported !== undefined && reserved !== null) return { ...row, planned: reserved, measured: reported };
  // Without the engine's own figure: the whole card's, which has the driver's share in it.
  return { ...row, planned: memory.total, measured: lastTelemetry(summary, "gpu/0/memory_used") };
}

/** "+3 %": how far the measured value lies from the planned. */
export function differenceText({ planned, measured }: Prediction): string {
  if (measured === null || planned <= 0) return "";
  const percent = Math.round((measured / planned - 1) * 100);
  return percent === 0 ? "as planned" : `${percent > 0 ? "+" : "−"}${countText(Math.abs(percent))} %`;
}

const PARTS = [
  { key: "computing", name: "computing", colour: "var(--color-teal)" },
  { key: "weights", name: "waiting for weights", colour: "var(--color-warning)" },
  { key: "optimizer", name: "waiting for the optimizer", colour: "var(--color-violet-soft)" },
] as const;

/** What the newest steps spent their time on. Nothing where the engine does not say: there is nothing to wait for. */
function MeasuredStep({ store }: { store: CurveStore }) {
  const seconds = {
    computing: useRecent(store, STEP_PARTS.computing),
    weights: useRecent(store, STEP_PARTS.weights),
    optimizer: useRecent(store, STEP_PARTS.optimizer),
  };
  const total = PARTS.reduce((sum, { key }) => sum + (seconds[key] ?? 0), 0);
  if (total <= 0) return null;
  const share = (key: keyof typeof seconds) => ((seconds[key] ?? 0) / total) * 100;
  return (
    <div>
      <div className="mb-1.5 flex justify-between gap-3 text-xs text-dim">
        Step time
        <span className="font-[520] text-text tabular-nums">{secondsText(total)}</span>
      </div>
      <div aria-hidden className="flex h-2.5 overflow-hidden rounded-full bg-white/6">
        {PARTS.map(({ key, colour }) => (
          <div key={key} className="h-full transition-[width] duration-200" style={{ width: `${share(key)}%`, background: colour }} />
        ))}
      </div>
      <ul className="mt-1.5 flex flex-wrap gap-x-3.5 gap-y-1 text-xs text-dim">
        {PARTS.map(({ key, name, colour }) => (
          <li key={key} className="flex items-center gap-1.5 tabular-nums">
            <span aria-hidden className="h-[3px] w-2.5 rounded-full" style={{ background: colour }} />
            {name} {Math.round(share(key))} %
          </li>
        ))}
      </ul>
    </div>
  );
}

type MemoryCardProps = {
  job: Job;
  store: CurveStore;
  /** Without what the overview of the job page shows already. */
  brief?: boolean;
};

/** Where the run's memory goes, and how well it was predicted. */
export function MemoryCard({ job, store, brief = false }: MemoryCardProps) {
  const { plan } = job;
  const { summary } = job;
  const tokensPerSecond = useRecent(store, "train/tokens_per_second");
  if (plan === null) return null;
  const predictions = predictionsOf(plan, summary, tokensPerSecond);
  const measured = Object.fromEntries(memoriesOf(plan).map(({ name }) => [name, predictions.find((row) => row.name.startsWith(name))?.measured ?? undefined]));
  const placement = typeof summary.facts.placement === "string" ? summary.facts.placement : plan.placement_text;
  const isMarked = Object.values(measured).some((value) => value !== undefined);
  return (
    <Card className="h-full">
      <CardHeader title="Memory" note={isMarked ? <MarkNote /> : "planned"} />
      <div className="grid gap-4">
        <MemoryBars memories={memoriesOf(plan)} measured={measured} />
        {!brief && <PredictionTable rows={predictions} />}
        <MeasuredStep store={store} />
        {!brief && <Facts facts={factsOf(job, plan, summary)} />}
        {placement && <p className="text-xs text-faint">{placement}</p>}
      </div>
    </Card>
  );
}

/** What was planned and what is measured, for the overview; the System tab has the parts. */
export function PlanCard({ job, store }: { job: Job; store: CurveStore }) {
  const { plan, summary } = job;
  const tokensPerSecond = useRecent(store, "train/tokens_per_second");
  if (plan === null) return null;
  return (
    <Card className="grow">
      <CardHeader title="Plan" note={summary.cost === null ? undefined : `${moneyText(summary.cost.hourly)} an hour`} />
      <div className="grid gap-4">
        <PredictionTable rows={predictionsOf(plan, summary, tokensPerSecond)} />
        <Facts facts={factsOf(job, plan, summary)} />
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
      <caption className="sr-only">Planned and measured values</caption>
      <thead>
        <tr className="text-dim">
          <th scope="col">
            <span className="sr-only">metric</span>
          </th>
          <th scope="col" className="pb-1 pl-2 text-right font-[450]">
            planned
          </th>
          <th scope="col" className="pb-1 pl-2 text-right font-[450]">
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

function factsOf(job: Job, plan: Plan, { facts }: RunSummary): [string, string][] {
  const rows: [string, string][] = [
    ["Device", plan.device === "cpu" ? "CPU" : (job.gpu_type ?? "GPU")],
    ["Precision", plan.precision],
  ];
  rows.unshift(["Parameters", parametersText(plan.parameters)]);
  rows.push(["Tokens per step", countText(plan.tokens_per_step)]);
  if (typeof facts.compiled === "boolean") rows.push(["Compiled layers", facts.compiled ? "yes" : "no"]);
  if (typeof facts.host_optimizer === "string") rows.push(["Host optimizer", facts.host_optimizer]);
  return rows;
}
