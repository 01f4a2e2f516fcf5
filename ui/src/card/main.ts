/**
 * The card of a run: eight sections in one file, drawn from data that lies in the page. Whoever shows it live
 * calls `metaflow_card_update` with newer data; zoom, search and scroll positions stay as they are. The page of
 * `bloom train --serve-metrics` comes without data, asks its server, and can steer the run.
 */
import { chartTools } from "@/charts/chart-tools";
import { ChartView } from "@/charts/chart-view";
import { chartSpecsFor, runCurve } from "@/charts/run-charts";
import { stepsPerEpoch } from "@/charts/plot-data";
import { type CardData, clockOf, curvesOf, hostsOf, marksOf } from "./card-data";
import { CardCurves, ChartGrid } from "./charts";
import { CheckpointsSection } from "./checkpoints-section";
import { ControlSection } from "./control-section";
import { element, section, time } from "./dom";
import { FailureSection } from "./failure-section";
import { follow } from "./live";
import { LogsSection } from "./logs-section";
import { SamplesSection } from "./samples-section";
import { badge, StatusSection } from "./status-section";
import { SystemSection } from "./system-section";
import { WhatRanSection } from "./what-ran-section";
import { countText } from "@/text/numbers";
import "./card.css";

declare global {
  interface Window {
    METAFLOW_RELOAD_TOKEN?: string;
    metaflow_card_update?: (data: CardData) => void;
  }
}

const SECTIONS = [["status", "Status"], ["metrics", "Metrics"], ["samples", "Samples"], ["system", "System"], ["checkpoints", "Checkpoints"], ["logs", "Logs"], ["failure", "Failure"], ["what-ran", "What ran"]] as const;

class Card {
  #curves = new CardCurves();
  #view = new ChartView(this.#curves);
  #title = element("h1");
  #made = element("p", { class: "dim" });
  #status = new StatusSection();
  #metrics = new ChartGrid(this.#view, "No metric has been reported yet.");
  #leftOut = element("p", { class: "dim" });
  #samples = new SamplesSection();
  #system = new SystemSection(this.#view);
  #checkpoints = new CheckpointsSection();
  #logs = new LogsSection();
  #failure = new FailureSection();
  #whatRan = new WhatRanSection();
  #links: Map<string, HTMLElement>;
  #control: ControlSection | null;
  #data: CardData | null = null;

  constructor(container: HTMLElement, control: ControlSection | null) {
    this.#control = control;
    const metrics = section("metrics", "Training metrics", chartTools(this.#view).root);
    metrics.body.append(this.#metrics.root, this.#leftOut);
    this.#links = new Map(SECTIONS.map(([id, title]) => [id, element("li", {}, element("a", { href: `#${id}` }, title))]));
    container.append(
      element("header", {}, element("div", {}, this.#title, this.#made), element("nav", { "aria-label": "Sections" }, element("ul", {}, ...this.#links.values()))),
      element("main", {}, this.#status.root, control?.root, metrics.root, this.#samples.root, this.#system.root, this.#checkpoints.root, this.#logs.root, this.#failure.root, this.#whatRan.root),
    );
    // A canvas keeps the colours that it was drawn with.
    matchMedia("(prefers-color-scheme: light)").addEventListener("change", () => this.#rebuild());
  }

  update = (data: CardData) => {
    // Something else than a card's data: a reader of a newer version says more than nothing.
    if (!data || data.v !== 1) return;
    this.#data = data;
    this.#curves.show(curvesOf(data), clockOf(data));
    this.#view.change({ marks: marksOf(data), stepsPerEpoch: stepsPerEpoch(data.status) });
    const { training, engine, system } = chartSpecsFor(this.#curves.all().map(runCurve), hostsOf(data));
    document.title = `${data.name} · TrainCard`;
    this.#title.replaceChildren(data.name, " ", badge(data.status.status));
    this.#made.replaceChildren("As of ", time(data.made_at));
    this.#status.show(data);
    this.#control?.show(data);
    this.#metrics.show([...training, ...engine]);
    this.#leftOut.textContent = data.metrics_left_out > 0 ? `Not shown here: ${countText(data.metrics_left_out)} metric series. Their values are in the run directory.` : "";
    this.#samples.show(data);
    this.#links.get("samples")?.toggleAttribute("hidden", this.#samples.root.hidden);
    this.#system.show(data, system);
    this.#checkpoints.show(data);
    this.#logs.show(data);
    this.#failure.show(data);
    this.#whatRan.show(data);
  };

  #rebuild() {
    this.#metrics.clear();
    this.#system.grid.clear();
    if (this.#data) this.update(this.#data);
  }
}

const container = document.getElementById("card");
const given = document.getElementById("card-data")?.textContent;
if (container && given) {
  const control = document.documentElement.dataset["live"] === undefined ? null : new ControlSection();
  const card = new Card(container, control);
  card.update(JSON.parse(given) as CardData);
  if (control) follow(control.token, card.update, control.onConnectionChange);
  // Substituted by Metaflow when it stores the page; an attribute, so that the script stays the one whose hash the page allows.
  window.METAFLOW_RELOAD_TOKEN = document.documentElement.dataset["reloadToken"] ?? "";
  window.metaflow_card_update = card.update;
}
