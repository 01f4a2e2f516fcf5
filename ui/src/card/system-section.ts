/** Section 3: the machines, as they are now and as they were. */
import { bytesText, countText, metricText, numberOf, percentText } from "@/text/numbers";
import type { CardData, Node, Value } from "./card-data";
import { systemChartSpecs } from "./chart-specs";
import { ChartGrid, type SharedView } from "./charts";
import { element, section, table } from "./dom";
import { clockText, sentence, toneOf, valueText } from "./words";

export class SystemSection {
  readonly root: HTMLElement;
  readonly grid: ChartGrid;
  #now = element("div");
  #ranks = element("div");

  constructor(view: SharedView) {
    const { root, body } = section("system", "System");
    this.grid = new ChartGrid(view, "No system metrics have been reported yet.");
    this.root = root;
    body.append(this.#now, this.grid.root, this.#ranks);
  }

  show(data: CardData) {
    this.#now.replaceChildren(...nowTables(data.system.nodes));
    this.grid.show(systemChartSpecs(data.system));
    this.#ranks.replaceChildren(...rankTables(data));
  }
}

type Values = Record<string, Value>;

const value = (values: Values, name: string, text: (value: number) => string) => valueText(values[name], text);
const used = (values: Values, part: string, whole: string) => {
  const total = value(values, whole, bytesText);
  return value(values, part, bytesText) + (total === "–" ? "" : ` / ${total}`);
};

function nowTables(nodes: readonly Node[]): HTMLElement[] {
  const several = nodes.length > 1;
  const title = (name: string, node: Node) => (several ? `${name} · ${node.host ?? "?"}` : name);
  const gpus = nodes.flatMap((node) => node.gpus.map((gpu) => ({ node, gpu })));
  const rows = gpus.map(({ node, gpu }) => {
    const at = (name: string) => `gpu/${gpu.index}/${name}`;
    return [
      title([`GPU ${gpu.index}`, gpu.name].filter(Boolean).join(" "), node),
      value(node.last, at("utilization"), percentText),
      used(node.last, at("memory_used"), at("memory_total")),
      value(node.last, at("temperature"), (number) => `${Math.round(number)} °C`),
      value(node.last, at("fan"), percentText),
      value(node.last, at("power"), (number) => `${Math.round(number)} W`),
    ];
  });
  if (gpus.length > 1) rows.push(allGpus(gpus));
  const machines = nodes.map((node) => [
    node.host ?? "This machine",
    value(node.last, "cpu/utilization", percentText),
    used(node.last, "ram/used", "ram/total"),
    value(node.last, "process/ram", bytesText),
    used(node.last, "disk/used", "disk/total"),
    `${value(node.last, "disk/read", bytesText)} / ${value(node.last, "disk/written", bytesText)}`,
  ]);
  const tables: HTMLElement[] = [];
  if (rows.length > 0) tables.push(table("GPUs now", ["GPU", "Utilization", "VRAM", "Temperature", "Fan", "Power"], rows));
  if (machines.length > 0) tables.push(table("Machines now", ["Machine", "CPU", "RAM", "Training process RAM", "Disk", "Disk read / written per second"], machines));
  return tables;
}

const sum = (values: number[]) => values.reduce((total, one) => total + one, 0);
const mean = (values: number[]) => percentText(sum(values) / values.length);
const text = (values: number[], join: (values: number[]) => string) => (values.length === 0 ? "–" : join(values));

const numbersOf = (measured: Value | undefined) => (measured === null || measured === undefined ? [] : [numberOf(measured)]);

/** Means where a share is meant, sums where amounts are, the hottest for temperatures. */
function allGpus(gpus: readonly { node: Node; gpu: { index: number } }[]): string[] {
  const all = (name: string) => gpus.flatMap(({ node, gpu }) => numbersOf(node.last[`gpu/${gpu.index}/${name}`]));
  return [
    `All ${countText(gpus.length)} GPUs`,
    text(all("utilization"), mean),
    text(all("memory_used"), (values) => bytesText(sum(values))) + text(all("memory_total"), (values) => ` / ${bytesText(sum(values))}`).replace("–", ""),
    text(all("temperature"), (values) => `${Math.round(Math.max(...values))} °C`),
    text(all("fan"), mean),
    text(all("power"), (values) => `${Math.round(sum(values))} W`),
  ];
}

const numberText = (number: number | null) => (number === null ? "–" : metricText(number));

function rankTables({ ranks, rank_variance: variance }: CardData): HTMLElement[] {
  if (ranks.length < 2) return [];
  const rows = ranks.map((rank) => [
    countText(rank.rank),
    rank.host ?? "–",
    element("span", { class: `badge ${rank.state === "dead" ? "bad" : rank.state === "alive" ? "live" : toneOf(rank.state)}` }, sentence(rank.state)),
    rank.step === null ? "–" : countText(rank.step),
    rank.step_seconds === null ? "–" : `${metricText(rank.step_seconds)} s`,
    clockText(rank.last_seen) || "–",
  ]);
  const spread = variance.map((one) =>
    element(
      "li",
      {},
      `${one.name}: mean ${numberText(one.mean)}, lowest ${numberText(one.lowest.value)} (rank ${one.lowest.rank}), highest ${numberText(one.highest.value)} (rank ${one.highest.rank})`,
      one.spread === null ? null : `, ${Math.round(one.spread * 100)} % above the lowest`,
    ),
  );
  const tables: HTMLElement[] = [element("h3", { class: "part" }, "Ranks"), table("Ranks", ["Rank", "Machine", "State", "Step", "Seconds per step", "Last seen"], rows)];
  if (spread.length > 0) tables.push(element("ul", { class: "spread" }, ...spread));
  return tables;
}
