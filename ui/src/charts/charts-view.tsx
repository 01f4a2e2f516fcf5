/** The view that the charts of a page share, in React: a context for it and the controls. */
import { createContext, use, useEffect, useRef, useState } from "react";
import { chartTools, type ToolOptions } from "./chart-tools";
import { ChartView, type CurveSource, type FetchRange } from "./chart-view";
import type { ChartMark } from "./plot-data";

export type { FetchRange } from "./chart-view";

export const ChartsViewContext = createContext<ChartView | null>(null);

export function useChartsView(): ChartView {
  const view = use(ChartsViewContext);
  if (view === null) throw new Error("A chart needs a view around it.");
  return view;
}

/** What all charts of a page share: their data, the part of it in view, and how it is drawn. `stepsPerEpoch`: for an axis in epochs. */
export function useNewChartsView(store: CurveSource, marks: readonly ChartMark[], fetchRange?: FetchRange, stepsPerEpoch: number | null = null): ChartView {
  const [view, setView] = useState(() => new ChartView(store));
  if (view.source !== store) setView(new ChartView(store));
  useEffect(() => view.change({ marks, stepsPerEpoch, fetchRange }), [view, marks, stepsPerEpoch, fetchRange]);
  useEffect(() => () => view.close(), [view]);
  return view;
}

/** How curves are drawn (smoothing, scale, axis), and which part of the run is in view. */
export function DrawingTools({ lengthOf, hasAxis, hasSmoothing }: ToolOptions) {
  const view = useChartsView();
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const tools = chartTools(view, { ...(lengthOf === undefined ? {} : { lengthOf }), ...(hasAxis === undefined ? {} : { hasAxis }), ...(hasSmoothing === undefined ? {} : { hasSmoothing }) });
    box.current?.append(tools.root);
    return () => {
      tools.destroy();
      tools.root.remove();
    };
  }, [view, lengthOf, hasAxis, hasSmoothing]);
  return <div ref={box} className="contents" />;
}
