/** Parallel coordinates as SVG: a line for each run across its settings, coloured by one value. */
import { type KeyboardEvent, type PointerEvent, useEffect, useRef, useState } from "react";
import { settingText } from "@/text/numbers";
import { type AxisRange, axisOf, colourOf, isInside, type ParallelAxis, type ParallelValue, shareOf, ticksOf } from "./parallel";

export type ParallelRun = { id: string; name: string; cells: Readonly<Record<string, ParallelValue | undefined>> };
type ParallelColumn = { name: string; title: string };
type Ranges = Readonly<Record<string, AxisRange>>;

type ParallelChartProps = {
  runs: readonly ParallelRun[];
  columns: readonly ParallelColumn[];
  /** The column that gives lines their colour; its axis is the last one. */
  colour: ParallelColumn;
  ranges: Ranges;
  onRanges: (ranges: Ranges) => void;
  onOpen: (run: ParallelRun) => void;
};

const HEIGHT = 300;
const TOP = 34;
const BOTTOM = 262;
const SIDE = 46;
/** Narrower than this, neighbouring marks touch: the chart scrolls instead. */
const LEAST_BETWEEN = 108;
/** A shorter drag is a click, which takes the range away. */
const LEAST_RANGE = 0.02;

export const axesOf = (runs: readonly ParallelRun[], columns: readonly ParallelColumn[]): ParallelAxis[] => columns.map(({ name, title }) => axisOf(name, title, runs.map((run) => run.cells[name])));

export function ParallelChart({ runs, columns, colour, ranges, onRanges, onOpen }: ParallelChartProps) {
  const [box, width] = useWidth();
  const [read, setRead] = useState<string | null>(null);
  const axes = axesOf(runs, [...columns, colour]);
  const last = axes.at(-1);
  const full = Math.max(width, 2 * SIDE + LEAST_BETWEEN * (axes.length - 1));
  const xOf = (index: number) => (axes.length < 2 ? full / 2 : SIDE + (index * (full - 2 * SIDE)) / (axes.length - 1));
  const inside = runs.filter((run) => isInside(axes, ranges, run.cells));
  const chosen = runs.find((run) => run.id === read) ?? null;
  if (last === undefined) return null;
  const colourFor = (run: ParallelRun) => colourOf(last, run.cells[last.name]);

  function onKey(event: KeyboardEvent) {
    const at = inside.findIndex((run) => run.id === read);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: inside.length - 1 };
    const next = steps[event.key];
    if (next !== undefined) setRead(inside[Math.min(inside.length - 1, Math.max(0, next))]?.id ?? null);
    else if (event.key === "Enter" && chosen) onOpen(chosen);
    else if (event.key === "Escape") {
      setRead(null);
      onRanges({});
    } else return;
    event.preventDefault();
  }

  const lineOf = (run: ParallelRun) => axes.map((axis, index) => `${index === 0 ? "M" : "L"}${xOf(index).toFixed(1)},${yOf(shareOf(axis, run.cells[axis.name])).toFixed(1)}`).join("");
  return (
    <>
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- arrows read one run after the other */}
      <div
        ref={box}
        role="application"
        // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- see above
        tabIndex={0}
        aria-label={`Parallel coordinates of ${inside.length} runs: ${axes.map(({ title }) => title).join(", ")}. Arrow keys read runs, Enter opens one, Escape clears the ranges.`}
        onKeyDown={onKey}
        className="overflow-x-auto rounded-control"
      >
        <svg width={full} height={HEIGHT} className="block select-none" onPointerLeave={() => setRead(null)}>
          <g fill="none" strokeLinejoin="round">
            {runs.filter((run) => !inside.includes(run)).map((run) => (
              <path key={run.id} d={lineOf(run)} stroke="var(--chart-grid)" strokeWidth={1.5} />
            ))}
            {inside.map((run) => (
              <path key={run.id} d={lineOf(run)} style={{ stroke: colourFor(run) }} strokeWidth={1.75} strokeOpacity={chosen === null || chosen.id === run.id ? 0.9 : 0.25} />
            ))}
            {chosen && <path d={lineOf(chosen)} style={{ stroke: colourFor(chosen) }} strokeWidth={3.5} />}
            {inside.map((run) => (
              // Wider than it is drawn: a line of two pixels is hard to meet.
              <path key={run.id} d={lineOf(run)} stroke="transparent" strokeWidth={10} className="cursor-pointer" onPointerEnter={() => setRead(run.id)} onClick={() => onOpen(run)} />
            ))}
          </g>
          {axes.map((axis, index) => (
            <Axis key={axis.name} axis={axis} x={xOf(index)} end={index === axes.length - 1} range={ranges[axis.name]} onRange={(range) => onRanges(withRange(ranges, axis.name, range))} />
          ))}
        </svg>
      </div>
      <p aria-live="polite" className="mt-1 min-h-10 text-xs text-dim">
        {chosen ? (
          <>
            <span aria-hidden className="mr-1.5 inline-block h-[3px] w-2.5 rounded-full align-middle" style={{ background: colourFor(chosen) }} />
            <b className="font-[590] text-text">{chosen.name}</b> {axes.map((axis) => `${axis.title} ${parallelText(chosen.cells[axis.name])}`).join(" · ")}
          </>
        ) : (
          "Point at a line to read a run; click it to open the run. Drag along an axis to keep a range of it."
        )}
      </p>
    </>
  );
}

const yOf = (share: number) => BOTTOM - share * (BOTTOM - TOP);

function withRange(ranges: Ranges, name: string, range: AxisRange | null): Ranges {
  const { [name]: _, ...rest } = ranges;
  return range === null ? rest : { ...rest, [name]: range };
}

export function parallelText(value: ParallelValue | undefined): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? (Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value) : settingText(Number(value.toPrecision(4)))) : value;
}

const MOST_WORDS = 12;
const LONGEST_WORD = 14;
const shortened = (text: string) => (text.length > LONGEST_WORD ? `${text.slice(0, LONGEST_WORD - 1)}…` : text);

type AxisProps = { axis: ParallelAxis; x: number; end: boolean; range: AxisRange | undefined; onRange: (range: AxisRange | null) => void };

/** One axis: title, marks, and the range that was dragged along it. */
function Axis({ axis, x, end, range, onRange }: AxisProps) {
  const [from, setFrom] = useState<number | null>(null);
  const shareAt = (event: PointerEvent<SVGRectElement>) => {
    const top = event.currentTarget.ownerSVGElement?.getBoundingClientRect().top ?? 0;
    return Math.min(1, Math.max(-0.12, (BOTTOM - (event.clientY - top)) / (BOTTOM - TOP)));
  };
  const rangeTo = (share: number) => (from === null || Math.abs(share - from) < LEAST_RANGE ? null : { from: Math.min(from, share), to: Math.max(from, share) });
  const ticks = ticksOf(axis);
  const every = Math.ceil(ticks.length / MOST_WORDS);
  return (
    <g fontSize={11} fill="var(--chart-ink)">
      <text x={x} y={16} textAnchor="middle" fill="var(--chart-text)" fontWeight={560}>
        <title>{axis.name}</title>
        {shortened(axis.title)}
      </text>
      <line x1={x} x2={x} y1={TOP} y2={BOTTOM} stroke="var(--chart-edge)" />
      {ticks.filter((_, index) => index % every === 0).map(({ share, value }) => (
        <g key={String(value)}>
          <line x1={x - 3} x2={x + 3} y1={yOf(share)} y2={yOf(share)} stroke="var(--chart-edge)" />
          {/* The edge keeps a label readable where lines cross it. */}
          <text x={end ? x - 7 : x + 7} y={yOf(share) + 4} textAnchor={end ? "end" : "start"} paintOrder="stroke" stroke="var(--chart-surface)" strokeWidth={3}>
            {shortened(parallelText(value))}
          </text>
        </g>
      ))}
      {axis.missing && (
        <text x={x} y={yOf(-0.09) + 16} textAnchor="middle">
          no value
        </text>
      )}
      {range && <rect x={x - 6} width={12} y={yOf(range.to)} height={Math.max(2, yOf(range.from) - yOf(range.to))} rx={3} fill="var(--chart-violet)" fillOpacity={0.35} stroke="var(--chart-violet)" />}
      <rect
        x={x - 9}
        width={18}
        y={TOP - 8}
        height={BOTTOM - TOP + 42}
        fill="transparent"
        className="cursor-ns-resize touch-none"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setFrom(shareAt(event));
        }}
        onPointerMove={(event) => from !== null && onRange(rangeTo(shareAt(event)))}
        onPointerUp={(event) => {
          onRange(rangeTo(shareAt(event)));
          setFrom(null);
        }}
        onPointerCancel={() => setFrom(null)}
      />
    </g>
  );
}

/** The width of an element, as it is and as it changes. */
function useWidth() {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, width] as const;
}
