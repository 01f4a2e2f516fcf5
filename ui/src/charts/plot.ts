/**
 * One uPlot chart that outlives its data: points are appended to it, and it is only built anew when it
 * gets other lines. Knows nothing of React.
 */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Along } from "./along";
import type { Column, ColumnRole, Cross, HoveredValue, Picture, Range } from "./plot-data";

/** A canvas knows no CSS variables: the colour that the page gives to `var(--name)`. */
export function resolved(colour: string): string {
  const name = /^var\((--[\w-]+)\)$/.exec(colour)?.[1];
  return name === undefined ? colour : getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const FONT = '11px "Inter Variable", system-ui, sans-serif';

/** A colour of six hexadecimal digits with some of the background shining through. */
const faded = (hex: string, alpha: number) => `${hex}${Math.round(alpha * 255).toString(16).padStart(2, "0")}`;

const points = (colour: string, size: number): uPlot.Series.Points => ({ show: true, size, fill: colour, stroke: colour, width: 0 });

/** How one column is drawn: bands have no line of their own, raw values stand faint behind the smoothed ones. */
function seriesOptions({ line, role, repeated }: Column, alone: boolean): uPlot.Series {
  const base: uPlot.Series = { label: line.label, points: { show: false } };
  // Steps that a later attempt did again are history.
  const strength = repeated ? 0.4 : 1;
  if (role === "low" || role === "high") return { ...base, width: 0, stroke: "transparent" };
  if (role === "raw") return { ...base, width: 1, stroke: faded(line.colour, 0.3 * strength) };
  return {
    ...base,
    width: 1.8,
    stroke: faded(line.colour, strength),
    ...(line.failed ? { dash: [5, 4] } : {}),
    ...(line.fill && !repeated ? { fill: faded(line.colour, 0.12) } : {}),
    points: line.dots ? points(line.colour, 6) : alone ? points(line.colour, 5) : { show: false },
  };
}

/** Areas between two columns, as uPlot wants them: series numbers, the upper one first. */
export function bandsOf(columns: readonly Column[]): uPlot.Band[] {
  return columns.flatMap((column, index) => {
    if (column.role === "low") return [{ series: [index + 2, index + 1] as [number, number], fill: faded(column.line.colour, 0.2) }];
    const base = column.line.below === undefined ? -1 : columns.findIndex((other) => isBelow(other, column));
    return base === -1 ? [] : [{ series: [index + 1, base + 1] as [number, number], fill: faded(column.line.colour, 0.3) }];
  });
}

const isBelow = (other: Column, column: Column) =>
  other.line.name === column.line.below && other.role === column.role && other.attempt === column.attempt && other.repeated === column.repeated;

const LINE = 15;
const RING = 5;
const CROSS = 4;
const TICK = 6;

/** A mark where it lies on the axis of a chart. `y`: the value that a ring goes around. */
export type PlacedMark = { x: number; label: string; kind: "resume" | "change" | "best" | "epoch"; y?: number };

type Ink = { mark: string; best: string; epoch: string };

/** Dashed lines across the chart, ticks for epochs and a ring for the best value; a large chart also has labels at the top, where they fit. */
function drawMarks(plot: uPlot, marks: readonly PlacedMark[], ink: Ink, ratio: number, labelled: boolean) {
  const { left, top, width, height } = plot.bbox;
  const { ctx } = plot;
  ctx.save();
  ctx.font = FONT.replace("11px", `${11 * ratio}px`);
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  // Where each line of labels is free again; marks that lie close together take different lines.
  const free = [left, left, left];
  const lineAcross = (x: number, from: number, dash: number[]) => {
    ctx.setLineDash(dash);
    ctx.beginPath();
    ctx.moveTo(x, from);
    ctx.lineTo(x, top + height);
    ctx.stroke();
  };
  for (const mark of marks) {
    const x = plot.valToPos(mark.x, "x", true);
    if (x < left || x > left + width) continue;
    ctx.lineWidth = ratio;
    if (mark.kind === "epoch") {
      ctx.strokeStyle = ink.epoch;
      lineAcross(x, top + height - TICK * ratio, []);
      continue;
    }
    if (mark.kind === "best") {
      if (mark.y === undefined) continue;
      ctx.strokeStyle = ink.best;
      ctx.lineWidth = 2 * ratio;
      ctx.setLineDash([]);
      ctx.beginPath();
      ctx.arc(x, plot.valToPos(mark.y, "y", true), RING * ratio, 0, 2 * Math.PI);
      ctx.stroke();
      continue;
    }
    ctx.strokeStyle = ink.mark;
    ctx.fillStyle = ink.mark;
    ctx.globalAlpha = 0.7;
    lineAcross(x, top, [3 * ratio, 4 * ratio]);
    ctx.globalAlpha = 1;
    if (!labelled) continue;
    const length = ctx.measureText(mark.label).width;
    const start = x + 6 * ratio + length > left + width ? x - 6 * ratio - length : x + 6 * ratio;
    const line = free.findIndex((from) => start >= from);
    if (line === -1 || length > width * 0.6) continue;
    ctx.fillText(mark.label, start, top + (4 + line * LINE) * ratio);
    free[line] = start + length + 8 * ratio;
  }
  ctx.restore();
}

/** A cross where a value was no number, at the height of its neighbour. */
function drawCrosses(plot: uPlot, crosses: readonly Cross[], ratio: number) {
  const { left, top, width, height } = plot.bbox;
  const { ctx } = plot;
  const arm = CROSS * ratio;
  ctx.save();
  ctx.lineWidth = 2 * ratio;
  for (const { x: at, y: value, line } of crosses) {
    const x = plot.valToPos(at, "x", true);
    if (x < left || x > left + width) continue;
    const inside = value === null ? top + height / 2 : plot.valToPos(value, "y", true);
    const y = Math.min(top + height - arm, Math.max(top + arm, Number.isFinite(inside) ? inside : top + height / 2));
    ctx.strokeStyle = resolved(line.colour);
    ctx.beginPath();
    ctx.moveTo(x - arm, y - arm);
    ctx.lineTo(x + arm, y + arm);
    ctx.moveTo(x + arm, y - arm);
    ctx.lineTo(x - arm, y + arm);
    ctx.stroke();
  }
  ctx.restore();
}

type Zoom = Range;
/** What lies under the cursor: a position on x, and the values of each line by its label. */
export type Hovered = { x: number; values: Map<string, HoveredValue> };

export type PlotSettings = {
  along: Along;
  height: number;
  logarithmic: boolean;
  /** Fixed ends of y, where the unit has some. */
  range?: { from?: number; to?: number };
  format: (value: number) => string;
  /** Width of the y axis; 52 unless the unit needs more. */
  axisWidth?: number;
  /** Charts with the same key move their cursors together. */
  syncKey: string;
  zoom: () => Zoom | null;
  marks: () => readonly PlacedMark[];
  onZoom: (zoom: Zoom | null) => void;
  onHover: (hovered: Hovered | null) => void;
};

const SMALLEST_DRAG = 6;
const LARGE = 200;

const MOTION_MS = 200;
/** Faster updates move by themselves; a motion for each would only cost time. */
const MOTION_PAUSE_MS = 2 * MOTION_MS;
/** A stronger stretch would distort the labels. */
const LARGEST_STRETCH = 1.25;

const allowsMotion = () => !matchMedia("(prefers-reduced-motion: reduce)").matches;

type ScaleEnds = { x: [number, number]; y: [number, number] };

function scaleEnds({ scales }: uPlot): ScaleEnds | null {
  const [x, y] = [scales["x"], scales["y"]];
  if (x?.min == null || x.max == null || y?.min == null || y.max == null) return null;
  return { x: [x.min, x.max], y: [y.min, y.max] };
}

/**
 * How a drawing has to be stretched and shifted to lie as it lay before its scale changed. `from` and `to` are the
 * positions that the earlier ends of the scale have now. Null where the stretch is too strong to be followed.
 */
export function motionAlong(from: number, to: number, length: number): { stretch: number; shift: number; visible: boolean } | null {
  const stretch = length / (to - from);
  if (!(stretch <= LARGEST_STRETCH && stretch >= 1 / LARGEST_STRETCH)) return null;
  return { stretch, shift: -from * stretch, visible: Math.abs(from) >= 1 || Math.abs(to - length) >= 1 };
}

export class Plot {
  #container: HTMLElement;
  #settings: PlotSettings;
  #plot: uPlot | null = null;
  #picture: Picture | null = null;
  /** The scales of the drawing that is about to be replaced; null where the new one does not move. */
  #earlier: ScaleEnds | null = null;
  #drawnAt = 0;

  constructor(container: HTMLElement, settings: PlotSettings) {
    this.#container = container;
    this.#settings = settings;
  }

  draw(picture: Picture) {
    const same = this.#picture?.structure === picture.structure && (picture.data[0].length > 1) === ((this.#picture?.data[0].length ?? 0) > 1);
    this.#picture = picture;
    const pause = performance.now() - this.#drawnAt;
    this.#drawnAt += pause;
    if (this.#plot && same) {
      this.#earlier = pause >= MOTION_PAUSE_MS && allowsMotion() ? scaleEnds(this.#plot) : null;
      this.#plot.setData(picture.data as uPlot.AlignedData);
      return;
    }
    const first = this.#plot === null;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(picture), picture.data as uPlot.AlignedData, this.#container);
    if (first && allowsMotion()) this.#plot.root.animate({ opacity: [0, 1] }, { duration: MOTION_MS, easing: "ease-out" });
  }

  /**
   * Moves the new drawing from where the earlier one lay. The canvas moves as a whole, axes included, so that every
   * value stays at its label all the time; nothing is drawn more than once.
   */
  #move(plot: uPlot) {
    const earlier = this.#earlier;
    this.#earlier = null;
    const { canvas } = plot.ctx;
    canvas.getAnimations().forEach((running) => running.cancel());
    if (earlier === null) return;
    const [left, top, width, height] = [plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height].map((length) => length / uPlot.pxRatio) as [number, number, number, number];
    const x = motionAlong(plot.valToPos(earlier.x[0], "x"), plot.valToPos(earlier.x[1], "x"), width);
    const y = motionAlong(plot.valToPos(earlier.y[1], "y"), plot.valToPos(earlier.y[0], "y"), height);
    if (x === null || y === null || !(x.visible || y.visible)) return;
    const transformOrigin = `${left}px ${top}px`;
    const transform = `translate(${x.shift}px, ${y.shift}px) scale(${x.stretch}, ${y.stretch})`;
    canvas.animate([{ transformOrigin, transform }, { transformOrigin, transform: "none" }], { duration: MOTION_MS, easing: "ease-out" });
  }

  resize(width: number, height = this.#settings.height) {
    if (width > 0 && height > 0) this.#plot?.setSize({ width, height });
  }

  destroy() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** The drawing itself; null before the first one. */
  get canvas(): HTMLCanvasElement | null {
    return this.#plot?.ctx.canvas ?? null;
  }

  /** The ends of both scales as they are drawn. */
  get scales(): ScaleEnds | null {
    return this.#plot && scaleEnds(this.#plot);
  }

  /** Moves the cursor by some points, for those who do not point: from the last one where there is none yet. */
  moveCursor(by: number) {
    const plot = this.#plot;
    const x = this.#picture?.data[0];
    if (!plot || !x?.length) return;
    const { from, to } = this.#settings.zoom() ?? { from: x[0] ?? 0, to: x.at(-1) ?? 0 };
    const inView = x.flatMap((value, index) => (value >= from && value <= to ? [index] : []));
    const last = inView.length - 1;
    const at = inView.indexOf(plot.cursor.idx ?? -1);
    const next = inView[at === -1 ? (by < 0 ? last : 0) : Math.min(last, Math.max(0, at + by))];
    if (next === undefined) return;
    plot.setCursor({ left: plot.valToPos(x[next] ?? 0, "x"), top: plot.bbox.height / uPlot.pxRatio / 2 });
  }

  hideCursor() {
    this.#plot?.setCursor({ left: -10, top: -10 });
  }

  #options(picture: Picture): uPlot.Options {
    const settings = this.#settings;
    const alone = picture.data[0].length === 1;
    const columns = picture.columns.map((column) => ({ ...column, line: { ...column.line, colour: resolved(column.line.colour) } }));
    const axisOptions: uPlot.Axis = {
      stroke: resolved("var(--chart-ink)"),
      font: FONT,
      grid: { stroke: resolved("var(--chart-grid)"), width: 1 },
      ticks: { show: false },
      gap: 6,
    };
    const ink = { mark: resolved("var(--chart-mark)"), best: resolved("var(--chart-green)"), epoch: resolved("var(--chart-ink)") };
    return {
      width: this.#container.clientWidth || 300,
      height: this.#container.clientHeight || settings.height,
      // Half of the last label on x stands outside the chart.
      padding: [8, settings.along === "time" ? 28 : 14, 0, 0],
      legend: { show: false },
      series: [{}, ...columns.map((column) => seriesOptions(column, alone))],
      bands: bandsOf(columns),
      scales: {
        x: { time: settings.along === "time", range: (_plot, low, high) => this.#xRange(low, high) },
        y: settings.logarithmic ? { distr: 3 } : { range: (_plot, low, high) => this.#yRange(low, high) },
      },
      axes: [
        { ...axisOptions, size: 22, values: (_plot, splits) => xLabels(splits, settings.along) },
        { ...axisOptions, size: settings.axisWidth ?? 52, space: settings.height > LARGE ? 46 : 34, values: (_plot, splits) => splits.map((value) => (value === null ? "" : settings.format(value))) },
      ],
      cursor: {
        y: false,
        points: { size: 7 },
        drag: { x: true, y: false, setScale: false },
        sync: { key: settings.syncKey, setSeries: false, scales: ["x", null], filters: { pub: (type) => type !== "mousedown" && type !== "mouseup" && type !== "dblclick" } },
        bind: { dblclick: () => () => (settings.onZoom(null), null) },
        dataIdx: (plot, series, closest) => nearest(plot.data[series], closest),
      },
      hooks: {
        setSelect: [(plot) => this.#selected(plot)],
        setCursor: [(plot) => settings.onHover(this.#hovered(plot))],
        draw: [
          (plot) => drawMarks(plot, settings.marks(), ink, uPlot.pxRatio, settings.height > LARGE),
          (plot) => drawCrosses(plot, this.#picture?.crosses ?? [], uPlot.pxRatio),
          (plot) => this.#move(plot),
        ],
      },
    };
  }

  #xRange(low: number | null, high: number | null): [number, number] {
    const zoom = this.#settings.zoom();
    if (zoom) return [zoom.from, zoom.to];
    if (low === null || high === null) return [0, 1];
    const positions = this.#picture?.data[0];
    // For one point, uPlot would show a whole day or a hundred steps.
    const only = positions?.length === 1 ? positions[0] : low === high ? low : undefined;
    if (only === undefined) return [low, high];
    // There is no step before the first.
    return this.#settings.along === "time" ? [only - 30, only + 30] : [Math.max(0, only - 1), only + 1];
  }

  #yRange(low: number | null, high: number | null): [number, number] {
    const { from, to } = this.#settings.range ?? {};
    const [bottom, top] = uPlot.rangeNum(low ?? 0, high ?? 1, 0.1, true);
    return [from ?? bottom ?? 0, to ?? (top === from ? (from ?? 0) + 1 : (top ?? 1))];
  }

  #selected(plot: uPlot) {
    const { left, width } = plot.select;
    if (width < SMALLEST_DRAG) return;
    const zoom = { from: plot.posToVal(left, "x"), to: plot.posToVal(left + width, "x") };
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.#settings.onZoom(zoom);
  }

  #hovered(plot: uPlot): Hovered | null {
    const { idx, idxs, left } = plot.cursor;
    if (idx === null || idx === undefined || (left ?? -1) < 0) return null;
    const values = new Map<string, HoveredValue>();
    // The columns of one piece of a line follow each other, and the line itself is the last of them.
    let byRole: Partial<Record<ColumnRole, number>> = {};
    this.#picture?.columns.forEach(({ line, role }, index) => {
      const at = idxs?.[index + 1];
      const value = typeof at === "number" ? plot.data[index + 1]?.[at] : null;
      if (typeof value === "number") byRole[role] = value;
      if (role !== "main") return;
      const { main, raw, low, high } = byRole;
      if (main !== undefined) {
        const smoothed = raw === undefined ? {} : { smoothed: main };
        const extremes = low !== undefined && high !== undefined && low < high ? { low, high } : {};
        values.set(line.label, { raw: raw ?? main, ...smoothed, ...extremes });
      }
      byRole = {};
    });
    const x = plot.data[0][idx];
    return x === undefined ? null : { x, values };
  }
}

export function xLabels(splits: number[], along: Along): string[] {
  if (along !== "time") return splits.map((value) => (Number.isInteger(value) || along === "epoch" ? compact.format(value).replace("K", "k") : ""));
  const short = (splits.at(-1) ?? 0) - (splits[0] ?? 0) < 300;
  const format = short ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } as const : { hour: "2-digit", minute: "2-digit" } as const;
  return splits.map((value) => new Date(value * 1000).toLocaleTimeString("en-GB", format));
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

/** The nearest point of a line that reports more rarely than others; the given index where it has none on one side. */
function nearest(values: ArrayLike<number | null | undefined> | undefined, wanted: number): number {
  if (!values || typeof values[wanted] === "number") return wanted;
  let before = wanted - 1;
  let after = wanted + 1;
  while (before >= 0 && typeof values[before] !== "number") before -= 1;
  while (after < values.length && typeof values[after] !== "number") after += 1;
  if (before < 0 || after >= values.length) return wanted;
  return wanted - before <= after - wanted ? before : after;
}
