/**
 * The machines and ranks of a run as rows of text: what the card and the job page show in their tables.
 * Both get the same fields, the card from a snapshot and the page from a job's summary.
 */
import { bytesText, countText, metricText, numberOf, percentText } from "./numbers";
import { clockText, sentence, valueText } from "./run-words";

type Value = number | string | null;
export type NodeNow = { host: string | null; gpus: readonly { index: number; name: string | null }[]; last: Readonly<Record<string, Value>> };
type RankNow = { rank: number; host: string | null; state: string; last_seen: number | null; step: number | null; step_seconds: number | null };
type RankValue = { rank: number; value: number | null };
type Spread = { name: string; mean: number | null; lowest: RankValue; highest: RankValue; spread: number | null };

export const GPU_COLUMNS = ["GPU", "Utilization", "VRAM", "Temperature", "Fan", "Power"] as const;
export const MACHINE_COLUMNS = ["Machine", "CPU", "RAM", "Training process RAM", "Disk used", "Disk read / written", "Network received / sent"] as const;
export const RANK_COLUMNS = ["Rank", "Machine", "State", "Step", "Time per step", "Last seen"] as const;

const value = (values: NodeNow["last"], name: string, text: (value: number) => string) => valueText(values[name], text);
const rate = (bytes: number) => `${bytesText(bytes)}/s`;
const used = (values: NodeNow["last"], part: string, whole: string) => {
  const total = value(values, whole, bytesText);
  return value(values, part, bytesText) + (total === "–" ? "" : ` / ${total}`);
};
function both(values: NodeNow["last"], one: string, other: string): string {
  const texts = [value(values, one, rate), value(values, other, rate)];
  return texts.every((text) => text === "–") ? "–" : texts.join(" / ");
}
const celsius = (number: number) => `${Math.round(number)} °C`;
const watts = (number: number) => `${countText(number)} W`;

/** One row per GPU, and one for all where there are several. */
export function gpuRows(nodes: readonly NodeNow[]): string[][] {
  const several = nodes.length > 1;
  const gpus = nodes.flatMap((node) => node.gpus.map((gpu) => ({ node, gpu })));
  const rows = gpus.map(({ node, gpu }) => {
    const at = (name: string) => `gpu/${gpu.index}/${name}`;
    const name = [`GPU ${gpu.index}`, gpu.name].filter(Boolean).join(" ");
    return [
      several ? `${name} · ${node.host ?? "?"}` : name,
      value(node.last, at("utilization"), percentText),
      used(node.last, at("memory_used"), at("memory_total")),
      value(node.last, at("temperature"), celsius),
      value(node.last, at("fan"), percentText),
      value(node.last, at("power"), watts),
    ];
  });
  return gpus.length > 1 ? [...rows, allGpus(gpus)] : rows;
}

const sum = (values: number[]) => values.reduce((total, one) => total + one, 0);
const mean = (values: number[]) => percentText(sum(values) / values.length);
const text = (values: number[], join: (values: number[]) => string) => (values.length === 0 ? "–" : join(values));
const numbersOf = (measured: Value | undefined) => (measured === null || measured === undefined ? [] : [numberOf(measured)]);

function allGpus(gpus: readonly { node: NodeNow; gpu: { index: number } }[]): string[] {
  const all = (name: string) => gpus.flatMap(({ node, gpu }) => numbersOf(node.last[`gpu/${gpu.index}/${name}`]));
  return [
    `All ${countText(gpus.length)} GPUs`,
    text(all("utilization"), mean),
    text(all("memory_used"), (values) => bytesText(sum(values))) + text(all("memory_total"), (values) => ` / ${bytesText(sum(values))}`).replace("–", ""),
    text(all("temperature"), (values) => celsius(Math.max(...values))),
    text(all("fan"), mean),
    text(all("power"), (values) => watts(sum(values))),
  ];
}

export const machineRows = (nodes: readonly NodeNow[]): string[][] =>
  nodes.map(({ host, last }) => [
    host ?? "This machine",
    value(last, "cpu/utilization", percentText),
    used(last, "ram/used", "ram/total"),
    value(last, "process/ram", bytesText),
    used(last, "disk/used", "disk/total"),
    both(last, "disk/read", "disk/written"),
    both(last, "network/received", "network/sent"),
  ]);

export const rankRow = ({ rank, host, state, step, step_seconds: seconds, last_seen: seen }: RankNow): string[] => [
  countText(rank),
  host ?? "–",
  sentence(state),
  step === null ? "–" : countText(step),
  seconds === null ? "–" : `${metricText(seconds)} s`,
  clockText(seen) || "–",
];

const numberText = (number: number | null) => (number === null ? "–" : metricText(number));

/** How far ranks lie apart in one metric. */
export function spreadText({ name, mean: average, lowest, highest, spread }: Spread): string {
  const above = spread === null ? "" : `, ${Math.round(spread * 100)} % above the lowest`;
  return `${name}: mean ${numberText(average)}, lowest ${numberText(lowest.value)} (rank ${lowest.rank}), highest ${numberText(highest.value)} (rank ${highest.rank})${above}`;
}

/** What a run says about itself, as text. */
export const factText = (fact: unknown): string =>
  typeof fact === "number" ? fact.toLocaleString("en-GB", { maximumSignificantDigits: 8 }) : typeof fact === "string" ? fact : fact === null ? "–" : JSON.stringify(fact);
