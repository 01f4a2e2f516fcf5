/**
 * The charts of a run on a page, in parts that a page can place where it wants. Pages need only `store`, `marks` and
 * `waiting`.
 */
import { type ReactNode, useMemo, useState, useSyncExternalStore } from "react";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { counted } from "@/text/numbers";
import { ChartCard } from "./chart-card";
import type { ChartSpec } from "./chart-spec";
import { ChartsViewContext, DrawingTools, type FetchRange, useNewChartsView } from "./charts-view";
import type { CurveStore } from "./curve-store";
import type { ChartMark } from "./plot-data";
import { chartSpecsFor, type RunCurve, runCurve } from "./run-charts";

/** Groups of charts. `summary`: the loss and the three that people look at first, for an overview. */
type ChartPart = "summary" | "training" | "engine" | "system";

type JobChartsProps = {
  store: CurveStore;
  marks: readonly ChartMark[];
  fetchRange?: FetchRange;
  /** Steps of an epoch, where known: charts mark epochs and can be drawn along them. */
  stepsPerEpoch?: number | null;
  /** What to say while there is nothing to draw. */
  waiting: string;
  /** Which charts; all but the summary where nothing is said. */
  parts?: readonly ChartPart[];
  /** Stands next to the loss chart. */
  aside?: ReactNode;
  /** The machine of each rank, where a run has several. */
  hosts?: Readonly<Record<string, string>>;
};

/** The charts of a store, made anew only when a run has other curves. */
function useChartSpecs(store: CurveStore, hosts?: Readonly<Record<string, string>>) {
  // The set of curves rarely changes; a text can be compared, a new list could not.
  const curves = useSyncExternalStore(store.subscribe, () => JSON.stringify(store.all().map(runCurve)));
  const machines = JSON.stringify(hosts ?? {});
  return useMemo(() => chartSpecsFor(JSON.parse(curves) as RunCurve[], JSON.parse(machines) as Record<string, string>), [curves, machines]);
}

const isLoss = ({ id }: ChartSpec) => id === "metric-loss";

function LossCard({ spec, waiting, className }: { spec: ChartSpec | undefined; waiting: string; className?: string }) {
  if (!spec) {
    return (
      <Card className={className}>
        <h2 className="text-[13px] font-[590]">Loss</h2>
        <p className="grid h-[250px] place-items-center text-center text-dim">{waiting}</p>
      </Card>
    );
  }
  return (
    <ChartCard spec={spec} className={className}>
      <DrawingTools />
    </ChartCard>
  );
}

const ALL_PARTS: readonly ChartPart[] = ["training", "engine", "system"];
const SUMMARY_NAMES = new Set(["train/learning_rate", "train/grad_norm", "train/tokens_per_second"]);
const TINY = 100;
/** The loss beside other cards: lower than alone, so that the overview stays short. */
const BESIDE = 250;

/** The charts of a run. */
export function JobCharts({ store, marks, fetchRange, stepsPerEpoch, waiting, parts = ALL_PARTS, aside, hosts }: JobChartsProps) {
  const view = useNewChartsView(store, marks, fetchRange, stepsPerEpoch ?? null);
  const specs = useChartSpecs(store, hosts);
  const found = specs.training.find(isLoss);
  const others = useMemo(() => specs.training.filter((spec) => !isLoss(spec)), [specs]);
  const summary = useMemo(() => others.filter(({ lines }) => SUMMARY_NAMES.has(lines[0]?.name ?? "")).map((spec) => ({ ...spec, height: TINY })), [others]);
  const isSummary = parts.includes("summary");
  const loss = useMemo(() => (found && isSummary ? { ...found, height: BESIDE } : found), [found, isSummary]);

  return (
    <ChartsViewContext value={view}>
      {(isSummary || parts.includes("training")) && (
        <section aria-label="Training charts" className="grid gap-3.5 lg:grid-cols-12">
          <LossCard spec={loss} waiting={waiting} className={aside ? "lg:col-span-8" : "lg:col-span-12"} />
          {aside && <div className="min-w-0 lg:col-span-4">{aside}</div>}
        </section>
      )}
      {parts.includes("training") && loss && (
        <p className="mt-2 text-xs text-faint max-sm:hidden print:hidden">
          Drag over a chart to zoom in. Double-click to show the whole run. With the keyboard: arrows read values, + and − zoom, Escape shows the whole run.
        </p>
      )}
      {isSummary && <ChartGrid label="Main training charts" specs={summary} />}
      {parts.includes("training") && <ChartGrid label="More training charts" specs={others} />}
      {parts.includes("engine") && specs.engine.length > 0 && (
        <>
          <h2 className="mt-6 text-[13px] font-[590]">Engine</h2>
          <ChartGrid label="Engine charts" specs={specs.engine} visible={VISIBLE_OF_ENGINE} />
        </>
      )}
      {parts.includes("system") && specs.system.length > 0 && (
        <>
          <h2 className="mt-6 text-[13px] font-[590]">System</h2>
          <ChartGrid label="System charts" specs={specs.system} visible={VISIBLE_OF_MACHINES} />
        </>
      )}
    </ChartsViewContext>
  );
}

/** So many charts of a group are drawn at first: a page that is longer is not read. */
const VISIBLE_CHARTS = 6;
/** One row: the first chart of the engine is wide. */
const VISIBLE_OF_ENGINE = 2;
const VISIBLE_OF_MACHINES = 3;

function ChartGrid({ label, specs, visible = VISIBLE_CHARTS }: { label: string; specs: readonly ChartSpec[]; visible?: number }) {
  const [all, setAll] = useState(false);
  if (specs.length === 0) return null;
  const hidden = specs.length - visible;
  return (
    <>
      <section aria-label={label} className="mt-3.5 grid gap-3.5 sm:grid-cols-2 lg:grid-cols-3">
        {(all ? specs : specs.slice(0, visible)).map((spec) => (
          <ChartCard key={spec.id} spec={spec} className={cn(spec.wide && "sm:col-span-2")} />
        ))}
      </section>
      {hidden > 0 && (
        <Button size="small" className="mt-3" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show fewer charts" : `Show ${counted(hidden, "more chart")}`}
        </Button>
      )}
    </>
  );
}
