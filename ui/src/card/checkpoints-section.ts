/** Section 4: what was saved, and which one is best. */
import { optimizationsIn, trainedText, trainingTime } from "@/text/checkpoint-details";
import { bytesText, countText, metricText } from "@/text/numbers";
import type { CardData, Checkpoint } from "./card-data";
import { element, empty, section, table, time } from "./dom";
import { valueText } from "@/text/run-words";

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
    const columns = COLUMNS.filter(({ cell, isOptional }) => !isOptional || kept.some((one) => cell(one) !== "–"));
    this.#body.replaceChildren(table("Checkpoints", columns.map(({ header }) => header), kept.map((one) => columns.map(({ cell }) => cell(one)))));
  }
}

const details = (one: Checkpoint) => one.metadata ?? {};

/** How long an evaluation took and where the run was: the same in every row, and no reason to choose a checkpoint. */
const ABOUT_THE_RUN = /(^|\/|_)(epoch|runtime|steps_per_second|samples_per_second|tokens_per_second|num_tokens|step)$/;

function metricsOf({ metrics }: Checkpoint): string {
  const texts = Object.entries(metrics ?? {}).filter(([name]) => !ABOUT_THE_RUN.test(name)).map(([name, value]) => `${name} ${valueText(value, metricText)}`);
  return texts.join(", ") || "–";
}

function pathOf(one: Checkpoint): Node {
  if (one.removed) return element("span", { class: "dim" }, `${one.path} (deleted)`);
  return one.link ? element("a", { href: one.link, download: true }, one.path) : element("code", {}, one.path);
}

type Column = { header: string; cell: (one: Checkpoint) => Node | string; isOptional?: boolean };

const COLUMNS: readonly Column[] = [
  { header: "Step", cell: (one) => element("span", {}, one.step === null ? "–" : countText(one.step), one.best && " ", one.best && element("span", { class: "badge good" }, "Best")) },
  { header: "Metrics", cell: metricsOf },
  { header: "Training time", cell: (one) => trainingTime(details(one)) ?? "–", isOptional: true },
  { header: "Trained parameters", cell: (one) => trainedText(details(one)) ?? "–", isOptional: true },
  { header: "Optimizations", cell: (one) => optimizationsIn(details(one)).join(", ") || "–", isOptional: true },
  { header: "Size", cell: ({ size }) => (size === null ? "–" : bytesText(size)) },
  { header: "Saved", cell: ({ t }) => time(t) },
  { header: "Path", cell: pathOf },
];
