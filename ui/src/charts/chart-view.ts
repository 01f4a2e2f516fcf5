/**
 * What all charts of a page share: where their curves come from, the part in view, and how they are drawn.
 * Knows neither React nor the card; both make one and hand it to their panels.
 */
import type { Curves } from "@/api/types";
import { type Along, type Clock, EPOCH_SERIES, mapped, StepMap, TOKEN_SERIES } from "./along";
import type { ChartMark, CurvePoints, Range } from "./plot-data";

/** Where curves come from: a store that follows a job, or the data of a card. */
export type CurveSource = {
  curve: (name: string) => CurvePoints | undefined;
  subscribe: (listener: () => void) => () => void;
  clock?: () => readonly Clock[];
  /** Takes a finer view of the steps from `from` on; null goes back to the whole run. */
  setDetail?: (detail: { from: number; curves: Curves } | null) => void;
};

export type FetchRange = (range: Range, signal: AbortSignal) => Promise<Curves>;

type Axis = "step" | "time";
type Zooms = Record<Axis, Range | null>;

/** Zooming goes on for a moment; what is fetched is what it ends with. */
const FETCH_DELAY_MS = 150;

export class ChartView {
  readonly source: CurveSource;
  fetchRange: FetchRange | undefined;
  marks: readonly ChartMark[] = [];
  smoothing = 0.6;
  logarithmic = false;
  along: Along = "step";
  zoom: Zooms = { step: null, time: null };
  /** So that charts can be drawn along epochs and mark where each begins. */
  stepsPerEpoch: number | null = null;
  #listeners = new Set<() => void>();
  #request: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Grows with every change of this view: React compares it. */
  version = 0;

  constructor(source: CurveSource) {
    this.source = source;
  }

  /** Tells of changes of the view itself; `source.subscribe` tells of new points. */
  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  change(settings: Partial<Pick<ChartView, "marks" | "smoothing" | "logarithmic" | "along" | "stepsPerEpoch" | "fetchRange">>) {
    const along = this.along;
    Object.assign(this, settings);
    // A part of the steps means nothing in tokens.
    if (along !== this.along) this.zoom = { step: null, time: null };
    if (along !== this.along) this.#fetchDetail();
    this.#announce();
  }

  setZoom = (axis: Axis, to: Range | null) => {
    this.zoom = { ...this.zoom, [axis]: to };
    this.#fetchDetail();
    this.#announce();
  };

  /** What a chart over steps is drawn along now. */
  axisOf(axis: Axis): Axis {
    return axis === "time" || this.along === "time" ? "time" : "step";
  }

  /** The axes that this run knows enough for. */
  choices(): Along[] {
    const choices: Along[] = ["step"];
    if ((this.source.clock?.() ?? []).some(({ x }) => x.length > 1)) choices.push("time");
    if (this.#tokens()) choices.push("tokens");
    if (this.stepsPerEpoch || this.source.curve(EPOCH_SERIES)) choices.push("epoch");
    return choices;
  }

  /** A curve as it lies along the chosen axis. */
  read = (name: string): CurvePoints | undefined => {
    const curve = this.source.curve(name);
    const map = curve?.axis === "step" ? this.map() : null;
    return curve && map ? mapped(curve, map) : curve;
  };

  /** Where steps lie on the chosen axis; null where it counts steps. */
  map(): StepMap | null {
    if (this.along === "time") return StepMap.ofClock(this.source.clock?.() ?? []);
    const tokens = this.along === "tokens" ? this.#tokens() : undefined;
    if (tokens) return StepMap.ofCurve(tokens);
    if (this.along !== "epoch") return null;
    const epochs = this.source.curve(EPOCH_SERIES);
    return epochs ? StepMap.ofCurve(epochs) : this.stepsPerEpoch ? StepMap.ofEpochs(this.stepsPerEpoch) : null;
  }

  #tokens(): CurvePoints | undefined {
    return TOKEN_SERIES.map((name) => this.source.curve(name)).find((curve) => curve !== undefined && curve.x.length > 0);
  }

  #fetchDetail() {
    clearTimeout(this.#timer);
    this.#request?.abort();
    this.#request = null;
    const { fetchRange, source } = this;
    const visible = this.zoom[this.axisOf("step")];
    const map = this.map();
    const steps = visible && map ? map.steps(visible) : visible;
    if (!steps || !fetchRange || !source.setDetail) {
      source.setDetail?.(null);
      return;
    }
    const request = (this.#request = new AbortController());
    const range = { from: Math.max(0, Math.floor(steps.from)), to: Math.max(0, Math.ceil(steps.to)) };
    this.#timer = setTimeout(() => {
      fetchRange(range, request.signal).then(
        (curves) => request.signal.aborted || source.setDetail?.({ from: range.from, curves }),
        // The coarse curve stays in view; zooming again asks again.
        () => undefined,
      );
    }, FETCH_DELAY_MS);
  }

  /** Stops what is under way. */
  close() {
    clearTimeout(this.#timer);
    this.#request?.abort();
  }

  #announce() {
    this.version += 1;
    this.#listeners.forEach((listener) => listener());
  }
}

const FRAME_MS = 8;

/** Draws charts for a part of each frame, so that none waits for all of them. */
class DrawQueue {
  #waiting = new Set<() => void>();
  #running = false;

  ask(draw: () => void) {
    this.#waiting.add(draw);
    if (this.#running) return;
    this.#running = true;
    requestAnimationFrame(this.#next);
  }

  forget(draw: () => void) {
    this.#waiting.delete(draw);
  }

  #next = () => {
    const end = performance.now() + FRAME_MS;
    for (const draw of this.#waiting) {
      this.#waiting.delete(draw);
      draw();
      if (performance.now() > end) break;
    }
    this.#running = this.#waiting.size > 0;
    if (this.#running) requestAnimationFrame(this.#next);
  };
}

export const drawQueue = new DrawQueue();
