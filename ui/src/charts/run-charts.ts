/**
 * Which charts a run gets, on its page, on a card and in a notebook: what has one scale is one chart with several
 * lines. Which curves there are decides, not what they hold, so that charts do not come and go.
 */
import { bytesText, countText, metricText, percentText, secondsText, shareText } from "@/text/numbers";
import { sentence } from "@/text/run-words";
import { EPOCH_SERIES, TOKEN_SERIES } from "./along";
import { type ChartSpec, ENGINE_MEMORY, METRICS, STEP_PARTS } from "./chart-spec";
import { curveKey, type CurvePoints, type LineSpec } from "./plot-data";
import { AMBER, BLUE, colourOf, GREEN, isProcess, paletteColour, partsOf, TEAL, VIOLET } from "./series-colours";

const LARGE = 300;
const SMALL = 140;
const MOST_LINES = 64;
const MOST_RANK_LINES = 16;
const MOST_CHARTS = 60;
const MOST_DOTS = 200;

/** A curve of a run. `isFlat`: not two points, or nothing but zeros; `isLong`: too many points for dots. */
export type RunCurve = { name: string; rank: number; isFlat?: boolean; isLong?: boolean };

export const runCurve = ({ name, rank, x, low, high }: CurvePoints): RunCurve => ({
  name,
  rank,
  isFlat: x.length < 2 || (high.every((value) => value === 0) && low.every((value) => value === 0)),
  isLong: isLong(x),
});

export const isLong = (x: readonly number[]) => x.length > MOST_DOTS;

/** Evaluations come rarely: each is a dot, and none is smoothed away. */
export function hasDots({ name, isLong: long }: Pick<RunCurve, "name" | "isLong">): boolean {
  const { split } = partsOf(name);
  return split !== "train" && split !== "" && long !== true;
}

type MetricSpec = Pick<ChartSpec, "title" | "format" | "range" | "smoothed" | "mayBeLogarithmic">;

/** In the order in which they are shown; anything else follows by name. */
const KNOWN_METRICS: Record<string, MetricSpec> = {
  loss: METRICS.loss,
  perplexity: METRICS.perplexity,
  learning_rate: METRICS.learningRate,
  grad_norm: METRICS.gradNorm,
  tokens_per_second: METRICS.tokensPerSecond,
  samples_per_second: METRICS.samplesPerSecond,
  accuracy: METRICS.accuracy,
  step_seconds: METRICS.stepSeconds,
};

const engine = (title: string, lines: readonly LineSpec[], spec: Partial<ChartSpec> = {}): ChartSpec => ({
  id: `engine-${lines[0]?.name ?? ""}`,
  title,
  axis: "step",
  height: SMALL,
  format: metricText,
  range: { from: 0 },
  lines,
  ...spec,
});

const alone = (name: string, label: string) => [{ name, label, colour: BLUE, fill: true }];
const gigabytes = (value: number) => `${Number(value.toPrecision(3))} GB/s`;

const ENGINE_CHARTS: readonly ChartSpec[] = [
  engine(
    "Step time by activity",
    [
      { name: STEP_PARTS.computing, label: "computing", colour: TEAL, fill: true },
      { name: STEP_PARTS.weights, label: "waiting for weights", colour: AMBER, below: STEP_PARTS.computing },
      { name: STEP_PARTS.optimizer, label: "waiting for the optimizer", colour: VIOLET, below: STEP_PARTS.weights },
    ],
    { format: secondsText, wide: true },
  ),
  engine(
    "Host–GPU transfer speed",
    [
      { name: "engine/link_in_gb_per_second", label: "host to GPU", colour: BLUE },
      { name: "engine/link_out_gb_per_second", label: "GPU to host", colour: AMBER },
    ],
    { format: gigabytes },
  ),
  engine("TFLOP/s", alone("engine/tflops", "TFLOP/s"), { smoothed: true }),
  engine("MFU (share of GPU peak)", alone("engine/mfu", "MFU"), { smoothed: true, format: shareText }),
  engine(
    "Memory used",
    [
      { name: ENGINE_MEMORY.GPU, label: "GPU", colour: VIOLET },
      { name: ENGINE_MEMORY.Host, label: "host", colour: BLUE },
    ],
    { format: bytesText },
  ),
];

/** Curves of the engine's charts, and those that are an axis of others. */
const OF_OTHER_CHARTS = new Set([...ENGINE_CHARTS.flatMap(({ lines }) => lines.map(({ name }) => name)), ...TOKEN_SERIES, "train/trained_tokens", EPOCH_SERIES]);

const joined = (...parts: (string | false)[]) => parts.filter(Boolean).join(" · ");

/** Training and evaluation of one metric are one chart, unless they differ in scale as speeds do. */
function chartOf(name: string): { id: string; metric: string; evaluation: boolean } {
  const { metric, split } = partsOf(name);
  const evaluation = isProcess(metric) && (split === "eval" || split === "test");
  return { id: evaluation ? `metric-${split}/${metric}` : `metric-${metric}`, metric, evaluation };
}

function trainingSpecs(curves: readonly RunCurve[]): ChartSpec[] {
  const charts = new Map<string, RunCurve[]>();
  for (const curve of curves) {
    if (curve.name.startsWith("system/") || OF_OTHER_CHARTS.has(curve.name)) continue;
    const { id } = chartOf(curve.name);
    charts.set(id, [...(charts.get(id) ?? []), curve]);
  }
  const order = Object.keys(KNOWN_METRICS);
  const orderOf = (metric: string) => (order.includes(metric) ? order.indexOf(metric) : order.length);
  const known = [...charts].map(([id, own]) => ({ ...chartOf(own[0]?.name ?? ""), id, own }));
  return known
    .toSorted((a, b) => orderOf(a.metric) - orderOf(b.metric) || a.metric.localeCompare(b.metric) || Number(a.evaluation) - Number(b.evaluation) || a.id.localeCompare(b.id))
    .slice(0, MOST_CHARTS)
    .map(({ id, metric, evaluation, own }) => {
      const spec = KNOWN_METRICS[metric] ?? { title: sentence(metric), format: metricText, smoothed: true };
      const isLoss = metric === "loss";
      const lines = linesOf(id, own);
      return {
        ...spec,
        title: evaluation ? `Eval ${spec.title.charAt(0).toLowerCase()}${spec.title.slice(1)}` : spec.title,
        id,
        axis: "step" as const,
        height: isLoss ? LARGE : SMALL,
        ...(isLoss ? { fills: true } : {}),
        lines: lines.length === 1 && !isLoss ? lines.map((line) => ({ ...line, fill: !line.dots })) : lines,
      };
    });
}

function linesOf(chart: string, own: readonly RunCurve[]): LineSpec[] {
  const ranksOf = (name: string) => own.filter((curve) => curve.name === name).length;
  const names = new Set(own.map(({ name }) => name)).size;
  const sorted = own.toSorted((a, b) => splitOrder(a.name) - splitOrder(b.name) || a.name.localeCompare(b.name) || a.rank - b.rank);
  const lines = sorted.slice(0, names > 1 ? MOST_LINES : MOST_RANK_LINES);
  return lines.map((curve) => {
    const { split, tags } = partsOf(curve.name);
    const several = ranksOf(curve.name) > 1;
    return {
      name: curveKey(curve),
      label: joined(names > 1 || !several ? split : "", tags, several && `rank ${curve.rank}`) || "value",
      colour: colourOf(chart, curve.name, curve.rank),
      dots: hasDots(curve),
    };
  });
}

const splitOrder = (name: string) => ["train", "", "eval", "test"].indexOf(partsOf(name).split);

type Measure = Pick<ChartSpec, "title" | "format" | "range"> & { parts: readonly { name: string; label?: string }[]; isRate?: boolean };

const PERCENT = { format: percentText, range: { from: 0, to: 100 } };
const BYTES = { format: bytesText, range: { from: 0 } };
const RATE = { format: (value: number) => `${bytesText(value)}/s`, range: { from: 0 }, isRate: true };
const unit = (text: string) => ({ format: (value: number) => `${countText(value)} ${text}`, range: { from: 0 } });

/** What machines measure; the number of a GPU stands for itself. One chart has a line for every GPU and machine. */
const MEASURES: readonly Measure[] = [
  { title: "GPU utilization", parts: [{ name: "gpu/utilization" }], ...PERCENT },
  { title: "GPU memory", parts: [{ name: "gpu/memory_used" }], ...BYTES },
  { title: "GPU temperature", parts: [{ name: "gpu/temperature" }], ...unit("°C"), range: {} },
  { title: "GPU power", parts: [{ name: "gpu/power" }], ...unit("W") },
  { title: "GPU fan", parts: [{ name: "gpu/fan" }], ...PERCENT },
  { title: "GPU clock", parts: [{ name: "gpu/clock" }], ...unit("MHz") },
  { title: "CPU utilization", parts: [{ name: "cpu/utilization" }], ...PERCENT },
  { title: "Machine memory", parts: [{ name: "ram/used" }], ...BYTES },
  { title: "Training process memory", parts: [{ name: "process/ram" }], ...BYTES },
  { title: "Disk throughput", parts: [{ name: "disk/read", label: "read" }, { name: "disk/written", label: "written" }], ...RATE },
  { title: "Network throughput", parts: [{ name: "network/received", label: "received" }, { name: "network/sent", label: "sent" }], ...RATE },
  { title: "Disk used", parts: [{ name: "disk/used" }], ...BYTES },
];

const KNOWN_MEASURES = new Set(MEASURES.flatMap(({ parts }) => parts.map(({ name }) => name)));
/** Limits, and flags that findings put into words. */
const UNCHARTED = /(total|_max|slowed_by_\w+)$/;

/** The name of a curve over all devices: a chart of its own, for the sum of eight GPUs would flatten each of them. */
export const aggregateName = (measure: string, how: string) => `system/all/${how}/${measure}`;

type Telemetry = RunCurve & { measure: string; gpu: string | null; how: string | null };

function telemetryOf(curve: RunCurve): Telemetry[] {
  const all = /^system\/all\/(\w+)\/(.+)$/.exec(curve.name);
  if (all) return [{ ...curve, how: String(all[1]), measure: String(all[2]), gpu: null }];
  const found = /^system\/(?:gpu\/(\d+)\/)?(.+)$/.exec(curve.name);
  if (!found) return [];
  const [, gpu, rest] = found;
  return [{ ...curve, how: null, gpu: gpu ?? null, measure: gpu === undefined ? String(rest) : `gpu/${rest}` }];
}

function systemSpecs(curves: readonly RunCurve[], hosts: Readonly<Record<string, string>>): ChartSpec[] {
  const telemetry = curves.flatMap(telemetryOf).toSorted((a, b) => a.rank - b.rank || Number(a.gpu) - Number(b.gpu));
  const several = new Set(telemetry.filter(({ how }) => how === null).map(({ rank }) => rank)).size > 1;
  const other = [...new Set(telemetry.map(({ measure }) => measure))].filter((name) => !KNOWN_MEASURES.has(name) && !UNCHARTED.test(name));
  const own = other.toSorted().map((name): Measure => ({ title: name, parts: [{ name }], format: metricText, range: { from: 0 } }));
  return [...MEASURES, ...own].flatMap(({ title, parts, format, range, isRate }) => {
    const measured = parts.flatMap((part) => telemetry.filter(({ measure }) => measure === part.name).map((one) => ({ ...one, part })));
    // A disk or a network that nobody used yet: the table of the machines says as much.
    if (isRate && measured.every(({ isFlat }) => isFlat)) return [];
    const devices = measured.filter(({ how }) => how === null);
    const lines = devices.slice(0, MOST_LINES).map((one) => ({
      name: curveKey(one),
      label: joined(one.gpu !== null && `GPU ${one.gpu}`, one.part.label ?? "", several && (hosts[one.rank] ?? `rank ${one.rank}`)) || title.toLowerCase(),
    }));
    if (lines.length === 0) return [];
    const base = { axis: "time" as const, height: SMALL, format };
    const id = `system-${parts[0]?.name ?? title}`;
    const chart: ChartSpec = {
      ...base,
      id,
      title,
      range,
      lines: lines.map((line, index) => ({ ...line, colour: lines.length === 1 ? BLUE : deviceColour(devices[index], index), fill: lines.length === 1 })),
    };
    const all = measured.filter(({ how }) => how === "sum");
    return [
      chart,
      ...all.map((one): ChartSpec => ({
        ...base,
        id: `${id}-${one.part.name}-sum`,
        title: joined(`${title}, sum`, one.part.label ?? ""),
        range,
        lines: [{ name: curveKey(one), label: "sum", colour: GREEN, fill: true }],
      })),
    ];
  });
}

/** By the number of the GPU on its machine, so that GPU 3 has one colour in all charts. */
const deviceColour = (one: Telemetry | undefined, index: number) => paletteColour(one && one.gpu !== null && one.rank === 0 ? Number(one.gpu) : index);

const has = (names: ReadonlySet<string>) => (spec: ChartSpec) => spec.lines.some((line) => names.has(line.name));

/** How sure a change of the eval loss is: a part of the answer whether the run improved, and no chart. */
const WITHOUT_CHART = new Set(["eval/loss_change", "eval/loss_change_margin"]);

/** The charts for the curves that a run has. `hosts`: machine by rank. */
export function chartSpecsFor(all: readonly RunCurve[], hosts: Readonly<Record<string, string>> = {}): Record<"training" | "engine" | "system", ChartSpec[]> {
  const curves = all.filter(({ name }) => !WITHOUT_CHART.has(name));
  const known = new Set(curves.map(({ name }) => name));
  return { training: trainingSpecs(curves), engine: ENGINE_CHARTS.filter(has(known)), system: systemSpecs(curves, hosts) };
}
