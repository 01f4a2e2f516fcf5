/** Section 4: what was saved, and which one is best. */
import { bytesText, countText, metricText } from "@/text/numbers";
import type { CardData, Checkpoint } from "./card-data";
import { element, empty, section, table } from "./dom";
import { timeText, valueText } from "./words";

const MOST = 200;

export class CheckpointsSection {
  readonly root: HTMLElement;
  #body: HTMLElement;
  #written = "";

  constructor() {
    const { root, body } = section("checkpoints", "Checkpoints");
    this.root = root;
    this.#body = body;
  }

  show({ checkpoints }: CardData) {
    const written = JSON.stringify(checkpoints);
    // Written again only when it changed, so that a link can be clicked while data comes in.
    if (written === this.#written) return;
    this.#written = written;
    const newest = checkpoints.items.toReversed();
    const kept = [...newest.filter((one) => one.best), ...newest.filter((one) => !one.best)].slice(0, MOST);
    if (kept.length === 0) {
      this.#body.replaceChildren(empty("No checkpoint has been saved yet."));
      return;
    }
    this.#body.replaceChildren(table("Checkpoints", ["Step", "Metrics", "Size", "Saved", "Path"], kept.map(row)));
  }
}

function row(one: Checkpoint): (Node | string)[] {
  const metrics = Object.entries(one.metrics ?? {}).map(([name, value]) => `${name} ${valueText(value, metricText)}`);
  const where = one.removed
    ? element("span", { class: "dim" }, `${one.path} (deleted)`)
    : one.link
      ? element("a", { href: one.link, download: true }, one.path)
      : element("code", {}, one.path);
  return [
    element("span", {}, one.step === null ? "–" : countText(one.step), one.best && " ", one.best && element("span", { class: "badge good" }, "Best")),
    metrics.join(", ") || "–",
    one.size === null ? "–" : bytesText(one.size),
    timeText(one.t),
    where,
  ];
}
