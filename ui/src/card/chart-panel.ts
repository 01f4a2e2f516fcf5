/** One chart with its title, its legend and its words; drawn only while it can be seen. */
import { describeChart, hoveredParts } from "@/charts/describe";
import { type Hovered, Plot, type Zoom } from "@/charts/plot";
import type { ChartMark } from "@/curves/chart-marks";
import { type LineSpec, pictureOf, type Picture } from "@/curves/columns";
import { countText } from "@/text/numbers";
import type { CardSeries } from "./card-data";
import type { ChartSpec } from "./chart-specs";
import { element } from "./dom";
import { clockText } from "./words";

export type ChartView = {
  read: (key: string) => CardSeries | undefined;
  marks: readonly ChartMark[];
  smoothing: number;
  logarithmic: boolean;
  zoom: { step: Zoom | null; time: Zoom | null };
  setZoom: (axis: "step" | "time", zoom: Zoom | null) => void;
};

const LARGE = 300;
const SMALL = 160;
const MOST_LEGEND = 12;
// A line that is alone in its chart needs no name, unless it says which part of a metric it is.
const OBVIOUS = new Set(["train", "eval", "value", "now"]);
const WIDE_AXIS = 66;

const structureOf = (lines: readonly LineSpec[]) => lines.map((line) => `${line.name} ${line.label} ${line.colour} ${line.dots}`).join("|");

const part = ({ name, text }: { name: string; text: string }) => element("span", { class: "part" }, element("small", {}, name), ` ${text}`);

export class ChartPanel {
  readonly root: HTMLElement;
  #spec: ChartSpec;
  #view: ChartView;
  #container = element("div", { class: "plot", role: "img" });
  #legend = element("ul", { class: "legend" });
  #values = new Map<string, HTMLElement>();
  #plot: Plot;
  #picture: Picture | null = null;
  #onScreen = false;
  #stale = true;

  constructor(spec: ChartSpec, view: ChartView) {
    this.#spec = spec;
    this.#view = view;
    const height = spec.large ? LARGE : SMALL;
    // The whole description comes with the drawing; until then its title names it.
    this.#container.setAttribute("aria-label", spec.title);
    this.#container.style.height = `${height}px`;
    this.root = element("figure", { class: spec.large ? "chart large" : "chart", id: spec.id }, element("figcaption", {}, element("h3", {}, spec.title), this.#legend), this.#container);
    this.#plot = new Plot(this.#container, {
      axis: spec.axis,
      height,
      format: spec.format,
      axisWidth: WIDE_AXIS,
      ...(spec.range ? { range: spec.range } : {}),
      logarithmic: view.logarithmic && spec.mayBeLogarithmic,
      syncKey: spec.axis,
      zoom: () => view.zoom[spec.axis],
      marks: () => view.marks,
      onZoom: (zoom) => view.setZoom(spec.axis, zoom),
      onHover: (hovered) => this.#hover(hovered),
    });
    new IntersectionObserver((entries) => {
      this.#onScreen = entries.at(-1)?.isIntersecting ?? false;
      if (this.#onScreen && this.#stale) this.#draw();
    }).observe(this.#container);
    new ResizeObserver(() => this.#plot.resize(this.#container.clientWidth)).observe(this.#container);
    this.#writeLegend();
  }

  /** Whether the chart still shows these lines; otherwise it is made anew. */
  shows(spec: ChartSpec): boolean {
    return structureOf(this.#spec.lines) === structureOf(spec.lines);
  }

  get onScreen(): boolean {
    return this.#onScreen;
  }

  /** Its data or its settings changed. */
  refresh() {
    this.#picture = null;
    this.redraw();
  }

  /** Only the visible part changed. */
  redraw() {
    this.#stale = true;
    if (this.#onScreen) this.#draw();
  }

  destroy() {
    this.#plot.destroy();
    this.root.remove();
  }

  #draw() {
    this.#stale = false;
    const { smoothing, logarithmic } = this.#view;
    const read = (key: string) => this.#view.read(key);
    if (this.#picture === null) {
      this.#picture = pictureOf(this.#spec.lines, read, {
        smoothing: this.#spec.smoothed ? smoothing : 0,
        positiveOnly: logarithmic && this.#spec.mayBeLogarithmic,
      });
      this.#container.setAttribute("aria-label", describeChart(this.#spec, read, this.#view.marks));
      this.#hover(null);
    }
    this.#plot.draw(this.#picture);
  }

  #writeLegend() {
    const lines = this.#spec.lines.slice(0, MOST_LEGEND);
    this.#legend.replaceChildren(
      ...lines.map((line) => {
        const value = element("span", { class: "number" });
        this.#values.set(line.label, value);
        const dash = element("span", { class: "dash" });
        dash.style.background = line.colour;
        return element("li", {}, dash, this.#spec.lines.length > 1 || !OBVIOUS.has(line.label) ? `${line.label} ` : null, value);
      }),
    );
    if (this.#spec.lines.length > MOST_LEGEND) this.#legend.append(element("li", {}, `and ${this.#spec.lines.length - MOST_LEGEND} more`));
    this.#hover(null);
  }

  /** Under the cursor, or the newest values. */
  #hover(hovered: Hovered | null) {
    for (const line of this.#spec.lines.slice(0, MOST_LEGEND)) {
      const cell = this.#values.get(line.label);
      const value = hovered?.values.get(line.label);
      const newest = this.#view.read(line.name)?.last?.value;
      if (!cell) continue;
      if (hovered) cell.replaceChildren(...(value ? hoveredParts(value, this.#spec.format).map(part) : ["–"]));
      else cell.textContent = newest === undefined ? "–" : this.#spec.format(newest);
    }
    this.root.dataset["at"] = hovered ? (this.#spec.axis === "step" ? `step ${countText(hovered.x)}` : clockText(hovered.x)) : "";
  }
}
