import { type ReactNode, useMemo, useSyncExternalStore } from "react";
import { Card } from "@/components/card";
import { ChartCard } from "./chart-card";
import { DrawingTools, RangeTools } from "./chart-tools";
import { ChartsViewContext, type FetchRange, useNewChartsView } from "./charts-view";
import { LOSS, chartSpecsFor } from "./chart-specs";
import type { ChartMark } from "@/curves/chart-marks";
import type { CurveStore } from "@/curves/curve-store";

type JobChartsProps = {
  store: CurveStore;
  marks: readonly ChartMark[];
  fetchRange?: FetchRange;
  /** What to say while there is nothing to draw. */
  waiting: string;
  /** Stands beside the loss. */
  aside?: ReactNode;
};

/** All charts of a run. */
export function JobCharts({ store, marks, fetchRange, waiting, aside }: JobChartsProps) {
  const view = useNewChartsView(store, marks, fetchRange);
  // The set of curves rarely changes; a text can be compared, a new list could not.
  const names = useSyncExternalStore(store.subscribe, () => store.names().join("\n"));
  const specs = useMemo(() => chartSpecsFor(names.split("\n").filter(Boolean)), [names]);
  const hasLoss = names.includes("/loss");

  return (
    <ChartsViewContext value={view}>
      <section aria-label="Training charts" className="mt-3.5 grid gap-3.5 lg:grid-cols-12">
        {hasLoss ? (
          <ChartCard spec={LOSS} className={aside ? "lg:col-span-8" : "lg:col-span-12"}>
            <DrawingTools />
          </ChartCard>
        ) : (
          <Card className={aside ? "lg:col-span-8" : "lg:col-span-12"}>
            <h2 className="text-[13px] font-[590]">Loss</h2>
            <p className="grid h-[300px] place-items-center text-center text-dim">{waiting}</p>
          </Card>
        )}
        {aside && <div className="min-w-0 lg:col-span-4">{aside}</div>}
      </section>
      {hasLoss && (
        <div className="mt-2 flex flex-wrap items-center justify-between gap-x-4">
          <p className="text-xs text-faint max-sm:hidden">Drag over a chart to zoom in; a double click shows the whole run again.</p>
          <RangeTools />
        </div>
      )}
      <ChartGrid label="More training charts" specs={specs.training} />
      {specs.engine.length > 0 && <h2 className="mt-6 text-[13px] font-[590]">Engine</h2>}
      <ChartGrid label="Engine charts" specs={specs.engine} />
      {specs.system.length > 0 && <h2 className="mt-6 text-[13px] font-[590]">System</h2>}
      <ChartGrid label="System charts" specs={specs.system} />
    </ChartsViewContext>
  );
}

function ChartGrid({ label, specs }: { label: string; specs: ReturnType<typeof chartSpecsFor>["training"] }) {
  if (specs.length === 0) return null;
  return (
    <section aria-label={label} className="mt-2 grid gap-3.5 sm:grid-cols-2 lg:grid-cols-3">
      {specs.map((spec) => (
        <ChartCard key={spec.title} spec={spec} className={spec.wide ? "sm:col-span-2" : undefined} />
      ))}
    </section>
  );
}
