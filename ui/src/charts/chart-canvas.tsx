import { memo, useEffect, useRef } from "react";
import { cn } from "@/components/class-names";
import { type LineSpec, pictureOf } from "@/curves/columns";
import { stackedRead } from "@/curves/stack";
import { useChartsView } from "./charts-view";
import { describeChart } from "./describe";
import { type Hovered, Plot, type PlotSettings } from "./plot";

export type ChartSpec = {
  title: string;
  lines: readonly LineSpec[];
  axis: "step" | "time";
  /** What is counted along a step axis, where it is not steps. */
  over?: "tokens";
  height: number;
  /** Grows with the card, which may stand beside a taller one. */
  fills?: boolean;
  /** Takes two places in a grid. */
  wide?: boolean;
  format: (value: number) => string;
  range?: PlotSettings["range"];
  /** Whether smoothing applies; a learning rate is exact. */
  smoothed?: boolean;
  /** Whether the logarithmic scale applies. */
  mayBeLogarithmic?: boolean;
};

const nothing = () => undefined as void;

type ChartCanvasProps = { spec: ChartSpec; onHover: (hovered: Hovered | null) => void };

/** Draws a chart, and draws again when points arrive, but only while it is on the screen. */
export const ChartCanvas = memo(function ChartCanvas({ spec, onHover }: ChartCanvasProps) {
  const { store, marks, smoothing, logarithmic: wantsLog, zoom, setZoom } = useChartsView();
  const container = useRef<HTMLDivElement>(null);
  const redraw = useRef(nothing);
  const logarithmic = wantsLog && spec.mayBeLogarithmic === true;
  const visible = zoom[spec.axis];
  const weight = spec.smoothed ? smoothing : 0;
  const latest = useRef({ marks, visible, weight, setZoom, onHover });

  useEffect(() => {
    latest.current = { marks, visible, weight, setZoom, onHover };
    redraw.current();
  }, [marks, visible, weight, setZoom, onHover]);

  useEffect(() => {
    const box = container.current;
    if (box === null) return;
    const { axis, height, format, range, lines } = spec;
    const plot = new Plot(box, {
      axis,
      height,
      format,
      range,
      logarithmic,
      syncKey: axis,
      zoom: () => latest.current.visible,
      marks: () => latest.current.marks,
      onZoom: (to) => latest.current.setZoom(axis, to),
      onHover: (hovered) => latest.current.onHover(hovered),
    });

    const read = (name: string) => store.curve(name);
    const drawn = lines.some((line) => line.below) ? stackedRead(lines, read) : read;
    let onScreen = false;
    let stale = true;
    const draw = () => {
      stale = true;
      if (!onScreen) return;
      stale = false;
      plot.draw(pictureOf(lines, drawn, { smoothing: latest.current.weight, positiveOnly: logarithmic }));
      box.setAttribute("aria-label", describeChart(spec, read, latest.current.marks));
    };
    redraw.current = draw;

    const watched = new IntersectionObserver((entries) => {
      onScreen = entries.at(-1)?.isIntersecting ?? false;
      if (onScreen && stale) draw();
    });
    const measured = new ResizeObserver(() => plot.resize(box.clientWidth, box.clientHeight));
    watched.observe(box);
    measured.observe(box);
    const stop = store.subscribe(draw);
    return () => {
      stop();
      redraw.current = nothing;
      watched.disconnect();
      measured.disconnect();
      plot.destroy();
    };
  }, [store, spec, logarithmic]);

  // The plot lies on top of its place, so that its own size never holds the card open.
  return (
    <div className={cn("relative w-full", spec.fills && "grow")} style={{ minHeight: spec.height }}>
      <div ref={container} role="img" aria-label={spec.title} className="absolute inset-0 touch-pan-y overflow-hidden" />
    </div>
  );
});
