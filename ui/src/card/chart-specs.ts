/** Which charts a run gets: what belongs together is one chart with several lines. */
import { type ChartSpec, METRICS } from "@/charts/chart-spec";
import { bytesText, metricText, percentText, shareText } from "@/text/numbers";
import { aggregateKey, type CardData, type Metric, metricKey, type SystemSeries, systemKey } from "./card-data";
import { sentence } from "@/text/run-words";

export type CardChartSpec = ChartSpec & { id: string; large: boolean };

/** So many line colours are in card.css, for dark and for light pages. */
const COLOURS = 8;
// Evaluations come rarely: each is a dot, and none is smoothed away.
const MOST_DOTS = 200;
const MOST_CHARTS = 60;
const MOST_LINES = 64;

type MetricSpec = Omit<ChartSpec, "lines" | "axis">;

/** In the order in which the card shows them; anything else follows by name. */
const KNOWN_METRICS: Record<string, MetricSpec> = {
  loss: METRICS.loss,
  perplexity: { title: "Perplexity", format: metricText, smoothed: true, mayBeLogarithmic: true },
  learning_rate: METRICS.learningRate,
  grad_norm: METRICS.gradNorm,
  tokens_per_second: METRICS.tokensPerSecond,
  samples_per_second: METRICS.samplesPerSecond,
  accuracy: { title: "Accuracy", format: shareText, smoothed: true },
  step_seconds: { title: "Seconds per step", format: metricText, range: { from: 0 }, smoothed: true },
};
const SPLITS = new Set(["train", "eval", "test"]);

const SYSTEM = ["gpu/utilization", "gpu/memory_used", "gpu/temperature", "gpu/fan", "gpu/power", "gpu/clock", "cpu/utilization", "ram/used", "process/ram", "disk/read", "disk/written", "disk/used", "network/received", "network/sent"];

/** "train/loss{expert=3}" is the metric "loss", of the split "train", with the tags "expert=3". */
export function partsOf(name: string): { metric: string; split: string; tags: string } {
  const brace = name.indexOf("{");
  const bare = brace === -1 ? name : name.slice(0, brace);
  const tags = brace === -1 ? "" : name.slice(brace + 1, -1);
  const slash = bare.indexOf("/");
  const split = slash !== -1 && SPLITS.has(bare.slice(0, slash)) ? bare.slice(0, slash) : "";
  return { metric: split ? bare.slice(slash + 1) : bare, split, tags };
}

const colourOf = (index: number) => `var(--line-${(index % COLOURS) + 1})`;
const joined = (...parts: (string | false)[]) => parts.filter(Boolean).join(" · ");

function linesOf(metric: Metric): { key: string; label: string; dots: boolean }[] {
  const { split, tags } = partsOf(metric.name);
  const ranks = [...new Set(metric.lines.map((line) => line.rank))].toSorted((a, b) => a - b);
  const points = metric.lines.reduce((most, line) => Math.max(most, line.x.length), 0);
  return ranks.map((rank) => ({
    key: metricKey(metric.name, rank),
    label: joined(split, tags, ranks.length > 1 && `rank ${rank}`) || "value",
    dots: split !== "train" && split !== "" && points <= MOST_DOTS,
  }));
}

export function metricChartSpecs(metrics: readonly Metric[]): CardChartSpec[] {
  const groups = new Map<string, Metric[]>();
  for (const metric of metrics) {
    const { metric: base } = partsOf(metric.name);
    groups.set(base, [...(groups.get(base) ?? []), metric]);
  }
  const order = Object.keys(KNOWN_METRICS);
  const rank = (base: string) => (order.includes(base) ? order.indexOf(base) : order.length);
  const bases = [...groups.keys()].toSorted((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  return bases.slice(0, MOST_CHARTS).map((base) => {
    const metric = KNOWN_METRICS[base] ?? { title: sentence(base), format: metricText, smoothed: true };
    const lines = (groups.get(base) ?? []).flatMap(linesOf).slice(0, MOST_LINES);
    return {
      ...metric,
      id: `metric-${base}`,
      axis: "step" as const,
      large: base === "loss",
      lines: lines.map(({ key, label, dots }, index) => ({ name: key, label, dots, colour: colourOf(index) })),
    };
  });
}

export function unitFormat(unit: string | null): (value: number) => string {
  if (unit === "%") return percentText;
  if (unit === "bytes") return bytesText;
  if (unit === "bytes/s") return (value) => `${bytesText(value)}/s`;
  return unit ? (value) => `${Math.abs(value) < 10 ? metricText(value) : Math.round(value)} ${unit}` : metricText;
}

const systemOrder = (one: SystemSeries) => (SYSTEM.includes(one.name) ? SYSTEM.indexOf(one.name) : SYSTEM.length);

export function systemChartSpecs({ nodes, series }: CardData["system"]): CardChartSpec[] {
  const visible = series.filter((one) => !one.name.endsWith("_total") && !one.name.endsWith("/total") && !one.name.endsWith("_max"));
  return visible
    .toSorted((a, b) => systemOrder(a) - systemOrder(b) || a.name.localeCompare(b.name))
    .slice(0, MOST_CHARTS)
    .map((one) => {
      const lines = one.lines.slice(0, MOST_LINES).map((line) => ({
        key: systemKey(one.name, line),
        label: joined(line.gpu !== null && `GPU ${line.gpu}`, nodes.length > 1 && (line.host ?? "")) || "now",
      }));
      if (one.aggregate && lines.length > 1) lines.push({ key: aggregateKey(one.name), label: `${one.aggregate.how} of all` });
      return {
        id: `system-${one.name}`,
        title: one.title,
        axis: "time" as const,
        large: false,
        smoothed: false,
        mayBeLogarithmic: false,
        range: one.unit === "%" ? { from: 0, to: 100 } : one.name.endsWith("temperature") ? {} : { from: 0 },
        format: unitFormat(one.unit),
        lines: lines.map(({ key, label }, index) => ({ name: key, label, colour: colourOf(index) })),
      };
    });
}
