/** The charts of the card: its data as a source of curves, and the grid of panels. */
import type { Clock } from "@/charts/along";
import { ChartPanel } from "@/charts/chart-panel";
import type { ChartSpec } from "@/charts/chart-spec";
import type { ChartView, CurveSource } from "@/charts/chart-view";
import type { CurvePoints } from "@/charts/plot-data";
import { element, empty } from "./dom";

/** The curves that lie in the file; newer ones replace all of them. */
export class CardCurves implements CurveSource {
  #curves: ReadonlyMap<string, CurvePoints> = new Map();
  #clock: readonly Clock[] = [];
  #listeners = new Set<() => void>();

  show(curves: ReadonlyMap<string, CurvePoints>, clock: readonly Clock[]) {
    [this.#curves, this.#clock] = [curves, clock];
    this.#listeners.forEach((listener) => listener());
  }

  all = () => [...this.#curves.values()];
  curve = (name: string) => this.#curves.get(name);
  clock = () => this.#clock;
  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };
}

const idOf = ({ id, title }: ChartSpec) => id ?? title;

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
    const wanted = new Set(specs.map(idOf));
    for (const [id, panel] of this.#panels) {
      if (wanted.has(id)) continue;
      panel.destroy();
      this.#panels.delete(id);
    }
    specs.forEach((spec, index) => {
      let panel = this.#panels.get(idOf(spec));
      if (!panel?.shows(spec)) {
        panel?.destroy();
        panel = new ChartPanel(this.#view, spec);
        this.#panels.set(idOf(spec), panel);
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
}
