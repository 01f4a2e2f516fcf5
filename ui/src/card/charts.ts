/** A group of charts that keep their places while data comes in, and share one zoom per axis. */
import type { CardSeries } from "./card-data";
import type { ChartSpec } from "./chart-specs";
import { ChartPanel, type ChartView } from "./chart-panel";
import { element, empty } from "./dom";

export class ChartGrid {
  readonly root = element("div", { class: "charts" });
  #panels = new Map<string, ChartPanel>();
  #view: ChartView;
  #nothing: HTMLElement;

  constructor(view: ChartView, nothing: string) {
    this.#view = view;
    this.#nothing = empty(nothing);
  }

  show(specs: readonly ChartSpec[]) {
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
