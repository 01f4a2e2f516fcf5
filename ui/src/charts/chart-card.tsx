/** A chart on a page: the canvas, the legend with the values under the cursor, and the values as a table. */
import { Table2 } from "lucide-react";
import { memo, type ReactNode, useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { DataTable } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { countText } from "@/text/numbers";
import type { PageChartSpec } from "./chart-spec";
import { useChartsView } from "./charts-view";
import { describeChart, hoveredParts, tableRows } from "./describe";
import { type Hovered, Plot } from "./plot";
import { type LineSpec, ownValue, pictureOf, stackedRead } from "./plot-data";

const nothing = () => undefined as void;

type ChartCanvasProps = { spec: PageChartSpec; onHover: (hovered: Hovered | null) => void };

/** Draws a chart, and draws again when points arrive, but only while it is on the screen. */
const ChartCanvas = memo(function ChartCanvas({ spec, onHover }: ChartCanvasProps) {
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

  // The plot lies on top of its container, so that its own size never holds the card open.
  return (
    <div className={cn("relative w-full", spec.fills && "grow")} style={{ minHeight: spec.height }}>
      <div ref={container} role="img" aria-label={spec.title} className="absolute inset-0 touch-pan-y overflow-hidden" />
    </div>
  );
});

/** The newest values of a chart as text. A snapshot: rows that move cannot be read. */
function ChartTable({ spec, onClose }: { spec: PageChartSpec; onClose: () => void }) {
  const { store } = useChartsView();
  const [rows] = useState(() => tableRows(spec.lines, (name) => store.curve(name)));
  const thinned = rows.some((row) => row.cells.some((cell) => cell?.low !== undefined));
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={spec.title} description={thinned ? "The newest values are at the top. A row for several steps shows their mean, lowest and highest value." : "The newest values are at the top."} className="max-w-xl">
      <DataTable
        label={spec.title}
        rows={rows}
        rowKey={(row) => row.key}
        columns={[
          {
            header: spec.over === "tokens" ? "Tokens" : spec.axis === "step" ? "Step" : "Time",
            lead: true,
            cell: (row) => (spec.axis === "step" ? countText(row.x) : new Date(row.x * 1000).toLocaleTimeString("en-GB")),
          },
          { header: "Attempt", cell: (row) => row.attempt },
          ...spec.lines.map((line, column) => ({
            header: spec.lines.length > 1 ? line.label : "Value",
            end: true,
            cell: (row: (typeof rows)[number]) => {
              const cell = row.cells[column];
              if (!cell) return null;
              return cell.low === undefined || cell.high === undefined ? spec.format(cell.value) : `${spec.format(cell.value)} (${spec.format(cell.low)} to ${spec.format(cell.high)})`;
            },
          })),
        ]}
      />
    </Dialog>
  );
}

type ChartCardProps = { spec: PageChartSpec; className?: string; children?: ReactNode };

/** A chart with its name, and the values under the cursor or, without one, the last. */
export function ChartCard({ spec, className, children }: ChartCardProps) {
  const [hovered, setHovered] = useState<Hovered | null>(null);
  const [asTable, setAsTable] = useState(false);
  const onHover = useCallback((next: Hovered | null) => setHovered((kept) => (kept === null && next === null ? kept : next)), []);

  return (
    <Card className={cn("flex flex-col", className)}>
      <div className="mb-2 flex items-start gap-x-2">
        <div className="flex min-w-0 grow flex-wrap items-center gap-x-3.5 gap-y-1">
          <h2 className="mr-auto text-[13px] font-[590]">{spec.title}</h2>
          {hovered && <span className="text-xs text-dim tabular-nums">{positionText(spec, hovered.x)}</span>}
          <div role="group" aria-label={`Values of ${spec.title}`} className="flex flex-wrap items-center gap-x-3.5 gap-y-1">
            {spec.lines.map((line) => (
              <Value key={line.name} line={line} spec={spec} hovered={hovered} named={spec.lines.length > 1} />
            ))}
          </div>
          {children}
        </div>
        <Button variant="ghost" size="icon" className="-my-1 -mr-1.5 size-7 max-sm:-my-2 max-sm:size-9" aria-label={`Show ${spec.title} as a table`} title="Show as a table" onClick={() => setAsTable(true)}>
          <Table2 aria-hidden />
        </Button>
      </div>
      <ChartCanvas spec={spec} onHover={onHover} />
      {asTable && <ChartTable spec={spec} onClose={() => setAsTable(false)} />}
    </Card>
  );
}

type ValueProps = { line: LineSpec; spec: PageChartSpec; hovered: Hovered | null; named: boolean };

function Value({ line, spec, hovered, named }: ValueProps) {
  const { store } = useChartsView();
  const last = useSyncExternalStore(store.subscribe, () => store.curve(line.name)?.last?.value);
  if (last === undefined) return null;
  const value = hovered && ownValue(line, spec.lines, hovered.values);
  return (
    <span className="flex flex-wrap items-center gap-x-1.5 text-xs text-dim tabular-nums">
      <span aria-hidden className="h-[3px] w-2.5 rounded-full" style={{ background: line.colour }} />
      {named && `${line.label} `}
      {!hovered && <span className="text-text">{spec.format(last)}</span>}
      {hovered && !value && "–"}
      {value &&
        hoveredParts(value, spec.format).map(({ name, text }) => (
          <span key={name}>
            {name} <span className="text-text">{text}</span>
          </span>
        ))}
    </span>
  );
}

function positionText({ axis, over }: PageChartSpec, x: number): string {
  if (over === "tokens") return `${countText(x)} tokens`;
  return axis === "step" ? `step ${countText(x)}` : new Date(x * 1000).toLocaleTimeString("en-GB");
}
