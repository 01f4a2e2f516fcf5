/** The charts of the card: one panel with a title, a legend and a description, drawn only while it is visible, and the grid of panels that share one zoom for each axis. */
import { describeChart, hoveredParts } from "@/charts/describe";
import { type Hovered, Plot, type Zoom } from "@/charts/plot";
import { type ChartMark, type LineSpec, type Picture, pictureOf } from "@/charts/plot-data";
import { countText } from "@/text/numbers";
import type { CardSeries } from "./card-data";
import type { CardChartSpec } from "./chart-specs";
import { element, empty } from "./dom";
import { clockText } from "@/text/run-words";

type ChartView = {
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

class ChartPanel {
  readonly root: HTMLElement;
  #spec: CardChartSpec;
  #view: ChartView;
  #container = element("div", { class: "plot", role: "img" });
  #legend = element("ul", { class: "legend" });
  #values = new Map<string, HTMLElement>();
  #plot: Plot;
  #picture: Picture | null = null;
  #onScreen = false;
  #stale = true;

  constructor(spec: CardChartSpec, view: ChartView) {
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
      logarithmic: view.logarithmic && spec.mayBeLogarithmic === true,
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
  shows(spec: CardChartSpec): boolean {
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
        positiveOnly: logarithmic && this.#spec.mayBeLogarithmic === true,
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

export class ChartGrid {
  readonly root = element("div", { class: "charts" });
  #panels = new Map<string, ChartPanel>();
  #view: ChartView;
  #nothing: HTMLElement;

  constructor(view: ChartView, nothing: string) {
    this.#view = view;
    this.#nothing = empty(nothing);
  }

  show(specs: readonly CardChartSpec[]) {
    const wanted = new Set(specs.map((spec) => spec.id));
    for (const [id, panel] of this.#panels) {
      if (wanted.has(id)) continue;
      panel.destroy();
      this.#panels.delete(id);
    }
    specs.forEach((spec, index) => {
      let panel = this.#panels.get(spec.id);
      if (panel?.shows(spec)) {
        panel.refresh();
      } else {
        panel?.destroy();
        panel = new ChartPanel(spec, this.#view);
        this.#panels.set(spec.id, panel);
      }
      if (this.root.children[index] !== panel.root) this.root.insertBefore(panel.root, this.root.children[index] ?? null);
    });
    if (specs.length === 0) this.root.replaceChildren(this.#nothing);
    else this.#nothing.remove();
  }

  /** Throws all charts away, for a change that each of them was made with. */
  clear() {
    for (const panel of this.#panels.values()) panel.destroy();
    this.#panels.clear();
  }

  get panels(): Iterable<ChartPanel> {
    return this.#panels.values();
  }
}

/** What all charts of the card share. */
export class SharedView implements ChartView {
  curves: ReadonlyMap<string, CardSeries> = new Map();
  marks: ChartView["marks"] = [];
  smoothing = 0.6;
  logarithmic = false;
  zoom: ChartView["zoom"] = { step: null, time: null };
  onZoom: (axis: "step" | "time") => void = () => undefined;

  read = (key: string) => this.curves.get(key);

  setZoom = (axis: "step" | "time", zoom: ChartView["zoom"]["step"]) => {
    this.zoom = { ...this.zoom, [axis]: zoom };
    this.onZoom(axis);
  };
}

/** Draws one chart a frame, so that no frame has to wait for all of them; those out of sight only take note. */
export class DrawQueue {
  #waiting = new Map<ChartPanel, (panel: ChartPanel) => void>();
  #running = false;

  ask(panels: Iterable<ChartPanel>, draw: (panel: ChartPanel) => void) {
    for (const panel of panels) {
      if (panel.onScreen) this.#waiting.set(panel, draw);
      else draw(panel);
    }
    if (!this.#running) this.#next();
  }

  #next = () => {
    const [panel, draw] = this.#waiting.entries().next().value ?? [];
    this.#running = panel !== undefined;
    if (!panel || !draw) return;
    this.#waiting.delete(panel);
    draw(panel);
    requestAnimationFrame(this.#next);
  };
}
