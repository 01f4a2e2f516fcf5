/**
 * All charts of a run on a page. The props are stable: pages that place the charts elsewhere, such as a tab, need
 * only `store`, `marks` and `waiting`. `LossChart` is the loss alone, for an overview.
 */
import { type ReactNode, useMemo, useSyncExternalStore } from "react";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { ChartCard } from "./chart-card";
import type { ChartSpec } from "./chart-spec";
import { ChartsViewContext, DrawingTools, type FetchRange, useNewChartsView } from "./charts-view";
import type { CurveStore } from "./curve-store";
import type { ChartMark } from "./plot-data";
import { chartSpecsFor, type RunCurve, runCurve } from "./run-charts";

type JobChartsProps = {
  store: CurveStore;
  marks: readonly ChartMark[];
  fetchRange?: FetchRange;
  /** Steps of an epoch, where known: charts mark epochs and can be drawn along them. */
  stepsPerEpoch?: number | null;
  /** What to say while there is nothing to draw. */
  waiting: string;
  /** Stands next to the loss chart. */
  aside?: ReactNode;
  /** Stands before the charts of the machines. */
  system?: ReactNode;
  /** The machine of each rank, where a run has several. */
  hosts?: Readonly<Record<string, string>>;
};

type LossChartProps = Pick<JobChartsProps, "store" | "marks" | "fetchRange" | "stepsPerEpoch" | "waiting"> & { className?: string };

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
        <p className="grid h-[300px] place-items-center text-center text-dim">{waiting}</p>
      </Card>
    );
  }
  return (
    <ChartCard spec={spec} className={className}>
      <DrawingTools />
    </ChartCard>
  );
}

/** The loss of a run alone. */
export function LossChart({ store, marks, fetchRange, stepsPerEpoch, waiting, className }: LossChartProps) {
  const view = useNewChartsView(store, marks, fetchRange, stepsPerEpoch ?? null);
  const { training } = useChartSpecs(store);
  return (
    <ChartsViewContext value={view}>
      <LossCard spec={training.find(isLoss)} waiting={waiting} className={className} />
    </ChartsViewContext>
  );
}

/** All charts of a run. */
export function JobCharts({ store, marks, fetchRange, stepsPerEpoch, waiting, aside, system, hosts }: JobChartsProps) {
  const view = useNewChartsView(store, marks, fetchRange, stepsPerEpoch ?? null);
  const specs = useChartSpecs(store, hosts);
  const loss = specs.training.find(isLoss);
  const others = useMemo(() => specs.training.filter((spec) => !isLoss(spec)), [specs]);

  return (
    <ChartsViewContext value={view}>
      <section aria-label="Training charts" className="mt-3.5 grid gap-3.5 lg:grid-cols-12">
        <LossCard spec={loss} waiting={waiting} className={aside ? "lg:col-span-8" : "lg:col-span-12"} />
        {aside && <div className="min-w-0 lg:col-span-4">{aside}</div>}
      </section>
      {loss && <p className="mt-2 text-xs text-faint max-sm:hidden">Drag over a chart to zoom in. Double-click to show the whole run. With the keyboard: arrows read values, + and − zoom, Escape shows the whole run.</p>}
      <ChartGrid label="More training charts" specs={others} />
      {specs.engine.length > 0 && <h2 className="mt-6 text-[13px] font-[590]">Engine</h2>}
      <ChartGrid label="Engine charts" specs={specs.engine} />
      {(system || specs.system.length > 0) && <h2 className="mt-6 text-[13px] font-[590]">System</h2>}
      {system}
      <ChartGrid label="System charts" specs={specs.system} />
    </ChartsViewContext>
  );
}

function ChartGrid({ label, specs }: { label: string; specs: readonly ChartSpec[] }) {
  if (specs.length === 0) return null;
  return (
    <section aria-label={label} className="mt-2 grid gap-3.5 sm:grid-cols-2 lg:grid-cols-3">
      {specs.map((spec) => (
        <ChartCard key={spec.id} spec={spec} className={cn(spec.wide && "sm:col-span-2")} />
      ))}
    </section>
  );
}
