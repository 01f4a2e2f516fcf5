import { memo, useEffect, useRef } from "react";
import { cn } from "@/components/class-names";
import { type LineLook, pictureOf } from "@/curves/columns";
import { stackedRead } from "@/curves/stack";
import { useChartsView } from "./charts-view";
import { describeChart } from "./describe";
import { type Hovered, Plot, type PlotSettings } from "./plot";

export type ChartLook = {
  title: string;
  lines: readonly LineLook[];
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

type ChartCanvasProps = { look: ChartLook; onHover: (hovered: Hovered | null) => void };

/** Draws a chart, and draws again when points arrive, but only while it is on the screen. */
export const ChartCanvas = memo(function ChartCanvas({ look, onHover }: ChartCanvasProps) {
  const { store, marks, smoothing, logarithmic: wantsLog, zoom, setZoom } = useChartsView();
  const place = useRef<HTMLDivElement>(null);
  const redraw = useRef(nothing);
  const logarithmic = wantsLog && look.mayBeLogarithmic === true;
  const visible = zoom[look.axis];
  const weight = look.smoothed ? smoothing : 0;
  const latest = useRef({ marks, visible, weight, setZoom, onHover });

  useEffect(() => {
    latest.current = { marks, visible, weight, setZoom, onHover };
    redraw.current();
  }, [marks, visible, weight, setZoom, onHover]);

  useEffect(() => {
    const box = place.current;
    if (box === null) return;
    const { axis, height, format, range, lines } = look;
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
      box.setAttribute("aria-label", describeChart(look, read, latest.current.marks));
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
  }, [store, look, logarithmic]);

  // The plot lies on top of its place, so that its own size never holds the card open.
  return (
    <div className={cn("relative w-full", look.fills && "grow")} style={{ minHeight: look.height }}>
      <div ref={place} role="img" aria-label={look.title} className="absolute inset-0 touch-pan-y overflow-hidden" />
    </div>
  );
});
