/**
 * One chart on a page, on a card or in a notebook: title, drawing, and below it the legend with the values under
 * the cursor or, without one, the last. Draws only while it is on the screen, and before it is printed.
 *
 * Without React: a card is one small file, and both draw charts in the same way only if there is one way.
 */
import type { Along } from "./along";
import { ALONG_NAMES, positionText } from "./along";
import type { ChartSpec } from "./chart-spec";
import { type ChartView, drawQueue } from "./chart-view";
import "./charts.css";
import { describeChart, hoveredParts, tableRows } from "./describe";
import { element } from "./element";
import { csvOf, download, type Drawing, fileName, pngOf, svgOf } from "./export-chart";
import { type Hovered, type PlacedMark, Plot } from "./plot";
import { type LineSpec, ownValue, type Picture, pictureOf, stackedRead } from "./plot-data";

/** A small chart has fewer pixels to fill than a large one. */
const pointsFor = (height: number) => (height > 200 ? 1_000 : 500);
const MOST_LEGEND = 16;
const MOST_EPOCH_TICKS = 60;
const AXIS_WIDTH = 66;
const ZOOM_FACTOR = 0.5;
const PAPER = { width: 720, height: 300 };
// A line that is alone in its chart needs no name, unless it says which part of a metric it is.
const OBVIOUS = new Set(["train", "value"]);

const ICONS = {
  table: "M3 5h18v14H3zM3 10h18M3 15h18M9 5v14",
  expand: "M8 3H3v5M16 3h5v5M8 21H3v-5M16 21h5v-5",
  save: "M12 4v11M7 11l5 5 5-5M4 20h16",
  close: "M6 6l12 12M18 6L6 18",
};

function icon(path: string): SVGSVGElement {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("viewBox", "0 0 24 24");
  made.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", path);
  made.append(line);
  return made;
}

function iconButton(path: string, label: string, title: string, onClick: () => void): HTMLButtonElement {
  const button = element("button", { type: "button", class: "chart-icon", "aria-label": label, title }, icon(path));
  button.addEventListener("click", onClick);
  return button;
}

const structureOf = ({ title, lines }: ChartSpec) => JSON.stringify([title, lines]);

type PanelOptions = {
  /** The level of the heading on its page. */
  heading?: "h2" | "h3";
  /** A chart in the full-size view has no button for it. */
  isFullSize?: boolean;
};

export class ChartPanel {
  readonly root: HTMLElement;
  #spec: ChartSpec;
  #view: ChartView;
  #container = element("div", { class: "plot", role: "img", tabindex: "0" });
  #printed = element("div", { class: "chart-print", "aria-hidden": "true" });
  #legend: HTMLElement;
  #at = element("span", { class: "chart-at" });
  #values = new Map<string, HTMLElement>();
  #hidden = new Set<string>();
  #plot: Plot;
  #along: Along;
  #logarithmic: boolean;
  #picture: Picture | null = null;
  #onScreen = false;
  #isPrinting = false;
  #stop: (() => void)[] = [];

  constructor(view: ChartView, spec: ChartSpec, { heading = "h3", isFullSize = false }: PanelOptions = {}) {
    this.#spec = spec;
    this.#view = view;
    // The whole description comes with the drawing; until then its title names it.
    this.#container.setAttribute("aria-label", spec.title);
    this.#legend = element("div", { class: "legend", role: "group", "aria-label": `Values of ${spec.title}` });
    const box = element("div", { class: "plot-box" }, this.#container);
    box.style.minHeight = `${spec.height}px`;
    const tools = element("div", { class: "chart-tools" }, ...this.#buttons(isFullSize));
    this.root = element(
      "figure",
      { class: `chart${spec.fills || isFullSize ? " fills" : ""}${spec.height > 200 ? " large" : ""}${spec.lines.length === 1 ? " single" : ""}`, ...(spec.id ? { id: isFullSize ? `${spec.id}-full` : spec.id } : {}) },
      element("figcaption", {}, element(heading, {}, spec.title), tools),
      box,
      this.#printed,
      element("div", { class: "chart-values" }, this.#at, this.#legend),
    );
    [this.#along, this.#logarithmic] = this.#drawnAs();
    this.#plot = this.#newPlot();
    this.#writeLegend();
    this.#watch();
  }

  /** Whether the chart still shows these lines; otherwise it is made anew. */
  shows(spec: ChartSpec): boolean {
    return structureOf(this.#spec) === structureOf(spec);
  }

  destroy() {
    drawQueue.forget(this.#draw);
    this.#stop.forEach((stop) => stop());
    this.#plot.destroy();
    this.root.remove();
  }

  #watch() {
    const watched = new IntersectionObserver((entries) => {
      this.#onScreen = entries.at(-1)?.isIntersecting ?? false;
      if (this.#onScreen && this.#picture === null) this.#draw();
    });
    const measured = new ResizeObserver(() => this.#plot.resize(this.#container.clientWidth, this.#container.clientHeight));
    watched.observe(this.#container);
    measured.observe(this.#container);
    const paper = matchMedia("print");
    const onPrint = () => (paper.matches ? this.#print() : this.#endPrint());
    const print = () => this.#print();
    const endPrint = () => this.#endPrint();
    addEventListener("beforeprint", print);
    addEventListener("afterprint", endPrint);
    paper.addEventListener("change", onPrint);
    this.#stop = [
      () => watched.disconnect(),
      () => measured.disconnect(),
      () => removeEventListener("beforeprint", print),
      () => removeEventListener("afterprint", endPrint),
      () => paper.removeEventListener("change", onPrint),
      this.#view.subscribe(this.refresh),
      this.#view.source.subscribe(this.refresh),
    ];
    this.#container.addEventListener("keydown", this.#onKey);
    this.#container.addEventListener("blur", () => this.#plot.hideCursor());
  }

  /** What it shows changed: the data, the part in view, or the way it is drawn. */
  refresh = () => {
    this.#picture = null;
    if (this.#onScreen || this.#isPrinting) drawQueue.ask(this.#draw);
    else this.#hover(null);
  };

  #drawnAs(): [Along, boolean] {
    const { along, logarithmic } = this.#view;
    return [this.#spec.axis === "time" ? "time" : (this.#spec.over ?? along), logarithmic && this.#spec.mayBeLogarithmic === true];
  }

  #newPlot(): Plot {
    const { height, format, range } = this.#spec;
    const axis = this.#view.axisOf(this.#spec.axis);
    return new Plot(this.#container, {
      along: this.#along,
      height,
      format,
      axisWidth: AXIS_WIDTH,
      ...(range ? { range } : {}),
      logarithmic: this.#logarithmic,
      syncKey: this.#along,
      zoom: () => this.#view.zoom[axis],
      marks: () => this.#marks(),
      onZoom: (zoom) => this.#view.setZoom(axis, zoom),
      onHover: (hovered) => this.#hover(hovered),
    });
  }

  #read = (name: string) => this.#view.read(name);

  #newPicture(): Picture {
    const { lines, smoothed, height } = this.#spec;
    const drawn = lines.some((line) => line.below) ? stackedRead(lines, this.#read) : this.#read;
    return pictureOf(lines, drawn, {
      smoothing: smoothed ? this.#view.smoothing : 0,
      positiveOnly: this.#logarithmic,
      visible: this.#view.zoom[this.#view.axisOf(this.#spec.axis)],
      most: pointsFor(height),
      hidden: this.#hidden,
    });
  }

  #draw = () => {
    const [along, logarithmic] = this.#drawnAs();
    if (along !== this.#along || logarithmic !== this.#logarithmic) {
      [this.#along, this.#logarithmic] = [along, logarithmic];
      this.#plot.destroy();
      this.#plot = this.#newPlot();
    }
    this.#picture = this.#newPicture();
    this.#container.setAttribute("aria-label", describeChart({ ...this.#spec, along }, this.#read, this.#view.marks));
    this.#plot.draw(this.#picture);
    this.#hover(null);
  };

  /** Marks lie at steps; a chart may be along something else. */
  #marks(): PlacedMark[] {
    if (this.#spec.axis === "time" || this.#spec.over) return [];
    const { marks, stepsPerEpoch } = this.#view;
    const map = this.#view.map();
    const newest = Number.POSITIVE_INFINITY;
    const xOf = (step: number) => (map ? map.at(step, newest) : step);
    const placed = marks.map((mark): PlacedMark => {
      const y = mark.series === undefined ? undefined : this.#valueAt(mark.series, xOf(mark.step));
      return { x: xOf(mark.step), label: mark.label, kind: mark.kind ?? "change", ...(y === undefined ? {} : { y }) };
    });
    const last = this.#picture?.data[0].at(-1) ?? 0;
    const epochs: PlacedMark[] = [];
    if (stepsPerEpoch && this.#along === "step" && last / stepsPerEpoch <= MOST_EPOCH_TICKS) {
      for (let step = stepsPerEpoch; step <= last; step += stepsPerEpoch) epochs.push({ x: step, label: "epoch", kind: "epoch" });
    }
    return [...epochs, ...placed];
  }

  /** The drawn value of a line next to a position, where this chart has that line. */
  #valueAt(name: string, x: number): number | undefined {
    const line = this.#spec.lines.find((one) => one.name === name);
    const curve = line && !this.#hidden.has(name) ? this.#read(name) : undefined;
    if (!curve || curve.x.length === 0) return undefined;
    let best = 0;
    curve.x.forEach((position, index) => {
      if (Math.abs(position - x) <= Math.abs((curve.x[best] ?? 0) - x)) best = index;
    });
    return curve.value[best];
  }

  #writeLegend() {
    const { lines, title } = this.#spec;
    const several = lines.length > 1;
    const items = lines.slice(0, MOST_LEGEND).map((line) => {
      const value = element("span", { class: "number" });
      this.#values.set(line.name, value);
      const dash = element("span", { class: line.failed ? "dash failed" : "dash" });
      dash.style.setProperty("--colour", line.colour);
      if (!several) return element("span", { class: "legend-item" }, dash, OBVIOUS.has(line.label) || line.label === title.toLowerCase() ? null : `${line.label} `, value);
      const toggle = element("button", { type: "button", class: "legend-item", "aria-pressed": "true", title: "Show or hide this line" }, dash, `${line.label} `, value);
      toggle.addEventListener("click", () => this.#toggle(line, toggle));
      return toggle;
    });
    this.#legend.replaceChildren(...items);
    if (lines.length > MOST_LEGEND) this.#legend.append(element("span", {}, `and ${lines.length - MOST_LEGEND} more`));
    this.#hover(null);
  }

  #toggle(line: LineSpec, button: HTMLElement) {
    if (!this.#hidden.delete(line.name)) this.#hidden.add(line.name);
    button.setAttribute("aria-pressed", String(!this.#hidden.has(line.name)));
    this.#draw();
  }

  /** Under the cursor, or the newest values. */
  #hover(hovered: Hovered | null) {
    for (const line of this.#spec.lines.slice(0, MOST_LEGEND)) {
      const cell = this.#values.get(line.name);
      if (!cell) continue;
      const value = hovered && ownValue(line, this.#spec.lines, hovered.values);
      const newest = this.#view.source.curve(line.name)?.last?.value;
      if (hovered) cell.replaceChildren(...(value ? hoveredParts(value, this.#spec.format).map(part) : ["–"]));
      else cell.textContent = newest === undefined ? "–" : this.#spec.format(newest);
    }
    const at = hovered ? positionText(this.#along, hovered.x) : "";
    this.root.dataset["at"] = at;
    this.#at.textContent = at;
    this.#at.title = hovered && this.#along === "time" ? new Date(hovered.x * 1000).toUTCString() : "";
  }

  #onKey = (event: KeyboardEvent) => {
    const far = event.shiftKey ? 10 : 1;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.#plot.moveCursor(-far),
      ArrowRight: () => this.#plot.moveCursor(far),
      "+": () => this.#zoomBy(ZOOM_FACTOR),
      "-": () => this.#zoomBy(1 / ZOOM_FACTOR),
      Escape: () => this.#view.setZoom(this.#view.axisOf(this.#spec.axis), null),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    // The full-size view closes with Escape, unless there is a zoom to undo.
    if (event.key === "Escape" && !this.#view.zoom[this.#view.axisOf(this.#spec.axis)]) return;
    event.preventDefault();
    // Read out only for those who move the cursor by keys: a mouse would never stop talking.
    this.#legend.setAttribute("aria-live", "polite");
    action();
  };

  #zoomBy(factor: number) {
    const x = this.#picture?.data[0];
    if (!x?.length) return;
    const axis = this.#view.axisOf(this.#spec.axis);
    const [first, last] = [x[0] ?? 0, x.at(-1) ?? 0];
    const { from, to } = this.#view.zoom[axis] ?? { from: first, to: last };
    const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
    this.#view.setZoom(axis, { from: middle - half, to: middle + half });
  }

  #buttons(isFullSize: boolean): HTMLElement[] {
    const { title } = this.#spec;
    const save = element("summary", { class: "chart-icon", "aria-label": `Save ${title}`, title: "Save as a file" }, icon(ICONS.save));
    const kinds = [
      ["CSV", () => Promise.resolve(new Blob([csvOf(this.#spec, this.#read, this.#along)], { type: "text/csv" }))],
      ["PNG", () => pngOf(this.#drawing())],
      ["SVG", () => Promise.resolve(new Blob([svgOf(this.#drawing())], { type: "image/svg+xml" }))],
    ] as const;
    const menu = element("details", { class: "chart-menu" }, save);
    const list = element("div", { class: "chart-menu-list" });
    for (const [kind, content] of kinds) {
      const button = element("button", { type: "button" }, kind);
      button.addEventListener("click", () => {
        menu.removeAttribute("open");
        void content().then((blob) => download(fileName(title, kind.toLowerCase()), blob));
      });
      list.append(button);
    }
    menu.append(list);
    menu.addEventListener("focusout", (event) => menu.contains(event.relatedTarget as Node | null) || menu.removeAttribute("open"));
    const table = iconButton(ICONS.table, `Show ${title} as a table`, "Show as a table", () => this.#showTable());
    return isFullSize ? [table, menu] : [table, iconButton(ICONS.expand, `Show ${title} in full size`, "Full size", () => this.#showFullSize()), menu];
  }

  #drawing(size: { width: number; height: number } | null = null): Drawing {
    const picture = this.#picture ?? this.#newPicture();
    const { clientWidth, clientHeight } = this.#container;
    const { width, height } = size ?? { width: Math.max(480, clientWidth), height: Math.max(240, clientHeight + 74) };
    // On paper all of it is drawn on scales of its own: this chart may never have been on the screen.
    const ends = size ? null : this.#plot.scales;
    return { spec: this.#spec, picture, read: this.#read, marks: this.#marks(), along: this.#along, logarithmic: this.#logarithmic, ends, width, height };
  }

  /** As vectors with the colours of the style sheet, which has others for paper. */
  #print() {
    if (this.#isPrinting) return;
    this.#isPrinting = true;
    const parsed = new DOMParser().parseFromString(svgOf(this.#drawing(PAPER), (colour) => colour), "image/svg+xml");
    this.#printed.replaceChildren(document.importNode(parsed.documentElement, true));
  }

  #endPrint() {
    this.#isPrinting = false;
    this.#printed.replaceChildren();
  }

  #showFullSize() {
    const panel = new ChartPanel(this.#view, { ...this.#spec, height: 320 }, { heading: "h2", isFullSize: true });
    openDialog(this.#spec.title, "chart-dialog full", panel.root, () => panel.destroy());
  }

  /** The newest values as text. A snapshot: rows that move cannot be read. */
  #showTable() {
    const { lines, title, format } = this.#spec;
    const rows = tableRows(lines, this.#read);
    const thinned = rows.some((row) => row.cells.some((cell) => cell?.low !== undefined));
    const names = lines.length > 1 ? lines.map(({ label }) => label) : ["Value"];
    const head = element("tr", {}, ...[ALONG_NAMES[this.#along], "Attempt", ...names].map((name) => element("th", { scope: "col" }, name)));
    const body = rows.map(({ x, attempt, cells }) => {
      const values = cells.map((cell) => (cell === null ? "" : cell.low === undefined || cell.high === undefined ? format(cell.value) : `${format(cell.value)} (${format(cell.low)} to ${format(cell.high)})`));
      return element("tr", {}, ...[positionText(this.#along, x), String(attempt), ...values].map((text) => element("td", {}, text)));
    });
    const note = thinned ? "The newest values are at the top. A row for several steps shows their mean, lowest and highest value." : "The newest values are at the top.";
    const table = element("table", { class: "chart-table" }, element("caption", { class: "chart-caption" }, note), element("thead", {}, head), element("tbody", {}, ...body));
    openDialog(title, "chart-dialog", element("div", {}, element("h2", {}, title), element("div", { class: "chart-scroll", tabindex: "0", role: "region", "aria-label": `Table of ${title}` }, table)));
  }
}

const part = ({ name, text }: { name: string; text: string }) => element("span", { class: "part" }, element("small", {}, name), ` ${text}`);

/** A window of the browser's own: it keeps the focus inside and closes with Escape. */
function openDialog(name: string, kind: string, content: HTMLElement, onClose: () => void = () => undefined) {
  const dialog = element("dialog", { class: kind, "aria-label": name }, content);
  dialog.append(iconButton(ICONS.close, "Close", "Close", () => dialog.close()));
  dialog.addEventListener("close", () => {
    onClose();
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
}
