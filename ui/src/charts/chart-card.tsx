/** A chart on a page of the app: the panel that cards have too, in a card of the app. */
import { type ReactNode, useEffect, useRef } from "react";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { ChartPanel } from "./chart-panel";
import type { ChartSpec } from "./chart-spec";
import { useChartsView } from "./charts-view";

type ChartCardProps = { spec: ChartSpec; className?: string; children?: ReactNode };

/** `spec` has to be the same object while nothing in it changes: with a new one the chart is made anew. `children` stand above the chart. */
export function ChartCard({ spec, className, children }: ChartCardProps) {
  const view = useChartsView();
  const box = useRef<HTMLDivElement>(null);

  useEffect(() => {
    const panel = new ChartPanel(view, spec, { heading: "h2" });
    box.current?.append(panel.root);
    return () => panel.destroy();
  }, [view, spec]);

  return (
    <Card className={cn("flex flex-col", className)}>
      {children && <div className="mb-1.5">{children}</div>}
      <div ref={box} className="contents [&>figure]:grow" />
    </Card>
  );
}
