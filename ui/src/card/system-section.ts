/** Section 3: the machines, as they are now and as they were. */
import { GPU_COLUMNS, gpuRows, MACHINE_COLUMNS, machineRows, RANK_COLUMNS, rankRow, spreadText } from "@/text/machines";
import type { ChartSpec } from "@/charts/chart-spec";
import type { ChartView } from "@/charts/chart-view";
import { toneOf } from "@/text/run-words";
import type { CardData, Node as CardNode } from "./card-data";
import { ChartGrid } from "./charts";
import { element, section, table } from "./dom";

export class SystemSection {
  readonly root: HTMLElement;
  readonly grid: ChartGrid;
  #now = element("div");
  #ranks = element("div");

  constructor(view: ChartView) {
    const { root, body } = section("system", "System");
    this.grid = new ChartGrid(view, "No system metrics have been reported yet.");
    this.root = root;
    body.append(this.#now, this.grid.root, this.#ranks);
  }

  show(data: CardData, charts: readonly ChartSpec[]) {
    this.#now.replaceChildren(...nowTables(data.system.nodes));
    this.grid.show(charts);
    this.#ranks.replaceChildren(...rankTables(data));
  }
}

function nowTables(nodes: readonly CardNode[]): HTMLElement[] {
  const gpus = gpuRows(nodes);
  const tables: HTMLElement[] = [];
  if (gpus.length > 0) tables.push(table("GPUs now", GPU_COLUMNS, gpus));
  if (nodes.length > 0) tables.push(table("Machines now", MACHINE_COLUMNS, machineRows(nodes)));
  return tables;
}

function rankTables({ ranks, rank_variance: variance }: CardData): HTMLElement[] {
  if (ranks.length < 2) return [];
  const rows = ranks.map((rank) =>
    rankRow(rank).map((cell, column) =>
      RANK_COLUMNS[column] === "State" ? element("span", { class: `badge ${rank.state === "alive" ? "live" : toneOf(rank.state)}` }, cell) : cell,
    ),
  );
  const tables: HTMLElement[] = [element("h3", { class: "part" }, "Ranks"), table("Ranks", RANK_COLUMNS, rows)];
  if (variance.length > 0) tables.push(element("ul", { class: "spread" }, ...variance.map((one) => element("li", {}, spreadText(one)))));
  return tables;
}
