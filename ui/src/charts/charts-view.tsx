/** The state that all charts of a page share (data, zoom, smoothing, scale), and the controls for it. */
import { ZoomOut } from "lucide-react";
import { createContext, use, useCallback, useEffect, useId, useMemo, useState } from "react";
import type { Curves } from "@/api/types";
import { Button } from "@/components/button";
import type { CurveStore } from "./curve-store";
import type { Zoom } from "./plot";
import type { ChartMark } from "./plot-data";

type ChartsView = {
  store: CurveStore;
  marks: readonly ChartMark[];
  smoothing: number;
  setSmoothing: (weight: number) => void;
  logarithmic: boolean;
  setLogarithmic: (on: boolean) => void;
  zoom: { step: Zoom | null; time: Zoom | null };
  setZoom: (axis: "step" | "time", zoom: Zoom | null) => void;
};

export const ChartsViewContext = createContext<ChartsView | null>(null);

export function useChartsView(): ChartsView {
  const view = use(ChartsViewContext);
  if (view === null) throw new Error("A chart needs a view around it.");
  return view;
}

export type FetchRange = (range: Zoom, signal: AbortSignal) => Promise<Curves>;

const PAUSE = 150;

/** What all charts of a page share: their data, the part of it in view, and how it is drawn. */
export function useNewChartsView(store: CurveStore, marks: readonly ChartMark[], fetchRange?: FetchRange): ChartsView {
  const [smoothing, setSmoothing] = useState(0.6);
  const [logarithmic, setLogarithmic] = useState(false);
  const [zoom, setZooms] = useState<ChartsView["zoom"]>({ step: null, time: null });
  const setZoom = useCallback<ChartsView["setZoom"]>((axis, to) => setZooms((kept) => ({ ...kept, [axis]: to })), []);
  useDetail(store, zoom.step, fetchRange);

  return useMemo(
    () => ({
      store,
      marks,
      smoothing,
      setSmoothing,
      logarithmic,
      setLogarithmic,
      zoom,
      setZoom,
    }),
    [store, marks, smoothing, logarithmic, zoom, setZoom],
  );
}

/** Fetches the visible steps in finer detail once the zooming pauses. */
function useDetail(store: CurveStore, zoom: Zoom | null, fetchRange?: FetchRange) {
  useEffect(() => {
    if (!zoom || !fetchRange) {
      store.setDetail(null);
      return;
    }
    const request = new AbortController();
    const range = { from: Math.max(0, Math.floor(zoom.from)), to: Math.max(0, Math.ceil(zoom.to)) };
    const timer = setTimeout(() => {
      fetchRange(range, request.signal).then(
        (curves) => request.signal.aborted || store.setDetail({ from: range.from, curves }),
        // The coarse curve stays in view; zooming again asks again.
        () => undefined,
      );
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      request.abort();
    };
  }, [store, zoom, fetchRange]);
}

/** How strongly curves are smoothed, and whether the loss is drawn on a logarithmic scale. */
export function DrawingTools() {
  const { smoothing, setSmoothing, logarithmic, setLogarithmic } = useChartsView();
  const id = useId();
  return (
    <>
      <label htmlFor={id} className="flex items-center gap-2 text-xs text-dim">
        smoothing
        <input
          id={id}
          type="range"
          min={0}
          max={0.98}
          step={0.02}
          value={smoothing}
          onChange={(event) => setSmoothing(Number(event.target.value))}
          className="h-5 w-20 accent-violet-soft"
        />
        <span className="w-7 text-text tabular-nums">{smoothing.toFixed(2)}</span>
      </label>
      <button
        type="button"
        aria-pressed={logarithmic}
        onClick={() => setLogarithmic(!logarithmic)}
        className="rounded-md border border-line-strong px-2 text-xs leading-5.5 text-dim transition-colors duration-150 hover:text-text aria-pressed:border-violet-soft/50 aria-pressed:bg-violet/18 aria-pressed:text-white max-sm:leading-8"
      >
        log scale
      </button>
    </>
  );
}

const RANGES = [
  ["whole", "Whole run"],
  ["half", "Last 50 %"],
  ["tenth", "Last 10 %"],
] as const;

/** The part of the run in view: dragging over a chart chooses one too. */
export function RangeTools() {
  const { store, setZoom } = useChartsView();

  function choose(range: string) {
    const steps = store.curve("train/loss")?.x;
    const first = steps?.[0];
    const last = steps?.at(-1);
    if (range === "whole" || first === undefined || last === undefined) return setZoom("step", null);
    const length = (last - first) * (range === "half" ? 0.5 : 0.1);
    setZoom("step", { from: last - Math.max(1, length), to: last });
  }

  return (
    <div className="flex flex-wrap items-center gap-1.5 text-xs text-dim">
      {RANGES.map(([value, text]) => (
        <Button key={value} variant="ghost" size="small" onClick={() => choose(value)}>
          {text}
        </Button>
      ))}
      <ResetZoom />
    </div>
  );
}

/** The way back from a zoom, for those who do not double-click. Absent while everything is in view. */
export function ResetZoom() {
  const { zoom, setZoom } = useChartsView();
  if (!zoom.step && !zoom.time) return null;
  return (
    <Button
      size="small"
      onClick={() => {
        setZoom("step", null);
        setZoom("time", null);
      }}
    >
      <ZoomOut aria-hidden />
      Reset zoom
    </Button>
  );
}
