import { useEffect, useMemo, useState } from "react";
import type { Curves } from "@/api/types";
import { ChartCard } from "@/charts/chart-card";
import { ChartsViewContext, DrawingTools, ResetZoom, useNewChartsView } from "@/charts/charts-view";
import { CurveStore } from "@/charts/curve-store";
import { Card } from "@/components/card";
import { type Along, comparedChartSpecs, comparedSeries } from "./compared";

const NO_MARKS: never[] = [];

/** The curves of all runs, laid over each other: one chart for each figure. */
export function ComparedCharts({ labels, curves }: { labels: string[]; curves: Curves[] }) {
  const [store] = useState(() => new CurveStore());
  const [along, setAlong] = useState<Along>("step");
  const view = useNewChartsView(store, NO_MARKS);
  const specs = useMemo(() => comparedChartSpecs(labels, curves, along), [labels, curves, along]);
  useEffect(() => store.load({ position: 0, series: comparedSeries(curves, along) }), [store, curves, along]);
  const countsTokens = curves.every(({ series }) => series.some((curve) => curve.name === "train/tokens_seen"));

  if (specs.length === 0) {
    return (
      <Card>
        <p className="grid h-40 place-items-center text-center text-dim">None of these runs has finished a step yet.</p>
      </Card>
    );
  }
  const { setZoom } = view;
  return (
    <ChartsViewContext value={view}>
      <section aria-label="Charts of the runs">
        <div className="mb-2 flex flex-wrap items-center gap-x-4 gap-y-2">
          {countsTokens && (
            <fieldset className="flex items-center gap-3 text-xs text-dim">
              <legend className="sr-only">Horizontal axis</legend>
              {(["step", "tokens"] as const).map((value) => (
                <label key={value} className="flex items-center gap-1.5">
                  <input
                    type="radio"
                    name="along"
                    checked={along === value}
                    onChange={() => {
                      // A part of the steps means nothing in tokens.
                      setZoom("step", null);
                      setAlong(value);
                    }}
                    className="accent-violet-soft"
                  />
                  {value === "step" ? "by step" : "by tokens seen"}
                </label>
              ))}
            </fieldset>
          )}
          <DrawingTools />
          <ResetZoom />
        </div>
        <div className="grid gap-3.5 lg:grid-cols-2">
          {specs.map((spec) => (
            <ChartCard key={`${spec.title} ${along}`} spec={spec} />
          ))}
        </div>
      </section>
    </ChartsViewContext>
  );
}
