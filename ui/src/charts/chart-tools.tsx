import { ZoomOut } from "lucide-react";
import { useId } from "react";
import { Button } from "@/components/button";
import { useChartsView } from "./charts-view";

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
        log
      </button>
    </>
  );
}

const RANGES = [
  ["whole", "Whole run"],
  ["half", "Last half"],
  ["tenth", "Last tenth"],
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
