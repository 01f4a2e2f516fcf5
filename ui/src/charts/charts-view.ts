import { createContext, use, useCallback, useEffect, useMemo, useState } from "react";
import type { Curves } from "@/api/types";
import type { ChartMark } from "@/curves/chart-marks";
import type { CurveStore } from "@/curves/curve-store";
import type { Zoom } from "./plot";

export type ChartsView = {
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
