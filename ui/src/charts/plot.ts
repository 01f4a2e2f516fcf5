/**
 * One uPlot chart that outlives its data: points are appended to it, and it is only built anew when it
 * gets other lines. Knows nothing of React.
 */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { ChartMark } from "@/curves/chart-marks";
import type { ColumnRole, HoveredValue, Picture } from "@/curves/columns";
import { drawMarks } from "./draw-marks";
import { FONT, bandsOf, paint, seriesOptions } from "./plot-style";

export type Zoom = { from: number; to: number };
/** What lies under the cursor: a place on x, and the values of each line by its label. */
export type Hovered = { x: number; values: Map<string, HoveredValue> };

export type PlotSettings = {
  axis: "step" | "time";
  height: number;
  logarithmic: boolean;
  /** Fixed ends of y, where the unit has some. */
  range?: { from?: number; to?: number };
  format: (value: number) => string;
  /** Room for the numbers beside y; 52 unless the unit needs more. */
  axisWidth?: number;
  /** Charts with the same key move their cursors together. */
  syncKey: string;
  zoom: () => Zoom | null;
  marks: () => readonly ChartMark[];
  onZoom: (zoom: Zoom | null) => void;
  onHover: (hovered: Hovered | null) => void;
};

const SMALLEST_DRAG = 6;
const LARGE = 200;

export class Plot {
  #container: HTMLElement;
  #settings: PlotSettings;
  #plot: uPlot | null = null;
  #picture: Picture | null = null;

  constructor(container: HTMLElement, settings: PlotSettings) {
    this.#container = container;
    this.#settings = settings;
  }

  draw(picture: Picture) {
    const same = this.#picture?.structure === picture.structure && (picture.data[0].length > 1) === ((this.#picture?.data[0].length ?? 0) > 1);
    this.#picture = picture;
    if (this.#plot && same) {
      this.#plot.setData(picture.data as uPlot.AlignedData);
      return;
    }
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(picture), picture.data as uPlot.AlignedData, this.#container);
  }

  resize(width: number, height = this.#settings.height) {
    if (width > 0 && height > 0) this.#plot?.setSize({ width, height });
  }

  destroy() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  #options(picture: Picture): uPlot.Options {
    const settings = this.#settings;
    const alone = picture.data[0].length === 1;
    return {
      width: this.#container.clientWidth || 300,
      height: this.#container.clientHeight || settings.height,
      padding: [8, 14, 0, 0],
      legend: { show: false },
      series: [{}, ...picture.columns.map((column) => seriesOptions(column, alone))],
      bands: bandsOf(picture.columns),
      scales: {
        x: { time: settings.axis === "time", range: (_plot, low, high) => this.#xRange(low, high) },
        y: settings.logarithmic ? { distr: 3 } : { range: (_plot, low, high) => this.#yRange(low, high) },
      },
      axes: [
        { ...axisOptions, size: 22, values: (_plot, splits) => xLabels(splits, settings.axis) },
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
        draw: [(plot) => settings.axis === "step" && drawMarks(plot, settings.marks(), uPlot.pxRatio, settings.height > LARGE)],
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
    const padding = this.#settings.axis === "time" ? 30 : 1;
    return only === undefined ? [low, high] : [only - padding, only + padding];
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

const axisOptions: uPlot.Axis = {
  stroke: () => paint.ink,
  font: FONT,
  grid: { stroke: () => paint.grid, width: 1 },
  ticks: { show: false },
  gap: 6,
};

function xLabels(splits: number[], axis: "step" | "time"): string[] {
  if (axis === "step") return splits.map((value) => (Number.isInteger(value) ? compact.format(value).replace("K", "k") : ""));
  const short = (splits.at(-1) ?? 0) - (splits[0] ?? 0) < 300;
  const format = short ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } as const : { hour: "2-digit", minute: "2-digit" } as const;
  return splits.map((value) => new Date(value * 1000).toLocaleTimeString("en-GB", format));
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

/** The nearest point of a line that reports more rarely than others; the asked place where it has none on one side. */
function nearest(values: ArrayLike<number | null | undefined> | undefined, wanted: number): number {
  if (!values || typeof values[wanted] === "number") return wanted;
  let before = wanted - 1;
  let after = wanted + 1;
  while (before >= 0 && typeof values[before] !== "number") before -= 1;
  while (after < values.length && typeof values[after] !== "number") after += 1;
  if (before < 0 || after >= values.length) return wanted;
  return wanted - before <= after - wanted ? before : after;
}
