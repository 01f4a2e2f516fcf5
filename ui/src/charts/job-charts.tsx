/** The charts of the job page: which curves of a run they show, in which colours and units. */
import { type ReactNode, useMemo, useSyncExternalStore } from "react";
import { Card } from "@/components/card";
import { bytesText, metricText, percentText, secondsText, shareText } from "@/text/numbers";
import { ChartCard } from "./chart-card";
import { ENGINE_MEMORY, METRICS, type PageChartSpec, STEP_PARTS } from "./chart-spec";
import { ChartsViewContext, DrawingTools, type FetchRange, RangeTools, useNewChartsView } from "./charts-view";
import { curveKey, type CurveStore } from "./curve-store";
import type { ChartMark } from "./plot-data";

const VIOLET = "var(--color-violet-soft)";
const TEAL = "var(--color-teal-soft)";
const BLUE = "var(--color-primary-soft)";
const AMBER = "var(--color-warning)";
const GREEN = "var(--color-success-soft)";

const SMALL = 128;

const LOSS: PageChartSpec = {
  ...METRICS.loss,
  axis: "step",
  height: 300,
  fills: true,
  lines: [
    { name: "train/loss", label: "train", colour: VIOLET },
    { name: "eval/loss", label: "eval", colour: TEAL, dots: true },
  ],
};

const small = (title: string, name: string, colour: string, spec: Partial<PageChartSpec> = {}): PageChartSpec => ({
  title,
  axis: "step",
  height: SMALL,
  format: metricText,
  lines: [{ name, label: title.toLowerCase(), colour, fill: true }],
  ...spec,
});

const STEP_CHARTS: PageChartSpec[] = [
  small(METRICS.learningRate.title, "train/learning_rate", BLUE, METRICS.learningRate),
  small(METRICS.gradNorm.title, "train/grad_norm", VIOLET, METRICS.gradNorm),
  small(METRICS.tokensPerSecond.title, "train/tokens_per_second", TEAL, METRICS.tokensPerSecond),
  small(METRICS.samplesPerSecond.title, "train/samples_per_second", TEAL, METRICS.samplesPerSecond),
  small("Step time", "train/step_seconds", AMBER, { range: { from: 0 }, smoothed: true, format: secondsText }),
  small("Eval accuracy", "eval/accuracy", GREEN, {
    format: shareText,
    lines: [{ name: "eval/accuracy", label: "accuracy", colour: GREEN, dots: true }],
  }),
  small("Eval perplexity", "eval/perplexity", AMBER, {
    lines: [{ name: "eval/perplexity", label: "perplexity", colour: AMBER, dots: true }],
  }),
];

const engine = (title: string, lines: PageChartSpec["lines"], spec: Partial<PageChartSpec> = {}): PageChartSpec => ({
  title,
  axis: "step",
  height: SMALL,
  format: metricText,
  range: { from: 0 },
  lines,
  ...spec,
});

const gigabytes = (value: number) => `${Number(value.toPrecision(3))} GB/s`;

const ENGINE_CHARTS: PageChartSpec[] = [
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
  small("TFLOP/s", "engine/tflops", TEAL, { range: { from: 0 }, smoothed: true }),
  small("MFU (share of GPU peak)", "engine/mfu", GREEN, { range: { from: 0 }, smoothed: true, format: shareText }),
  engine(
    "Memory used",
    [
      { name: ENGINE_MEMORY.GPU, label: "GPU", colour: VIOLET },
      { name: ENGINE_MEMORY.Host, label: "host", colour: BLUE },
    ],
    { format: bytesText },
  ),
];

const namesIn = (specs: readonly PageChartSpec[]) => specs.flatMap((spec) => spec.lines.map((line) => line.name));

/** Curves that are in one of the charts above, or say nothing that needs one. */
const CHARTED = new Set(["train/loss", "eval/loss", "train/tokens_seen", "train/trained_tokens", ...namesIn(STEP_CHARTS), ...namesIn(ENGINE_CHARTS)]);

const COLOURS = [VIOLET, TEAL, AMBER, BLUE, GREEN, "var(--color-danger-soft)", "var(--color-dim)"];
const MOST_RANK_LINES = 16;
const colourOf = (index: number) => COLOURS[index % COLOURS.length] ?? VIOLET;

type Measure = Pick<PageChartSpec, "title" | "format" | "range"> & { parts: readonly { name: string; label?: string }[] };

const PERCENT = { format: percentText, range: { from: 0, to: 100 } };
const BYTES = { format: bytesText, range: { from: 0 } };
const RATE = { format: (value: number) => `${bytesText(value)}/s`, range: { from: 0 } };
const unit = (text: string) => ({ format: (value: number) => `${Math.round(value)} ${text}`, range: { from: 0 } });

/** What machines measure; the number of a GPU stands for itself. One chart has a line for every GPU and machine. */
const MEASURES: readonly Measure[] = [
  { title: "GPU utilization", parts: [{ name: "gpu/utilization" }], ...PERCENT },
  { title: "GPU memory", parts: [{ name: "gpu/memory_used" }], ...BYTES },
  { title: "GPU temperature", parts: [{ name: "gpu/temperature" }], ...unit("°C") },
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

type Curve = { name: string; rank: number };
type Telemetry = Curve & { measure: string; gpu: string | null };

function telemetryOf({ name, rank }: Curve): Telemetry[] {
  const found = /^system\/(?:gpu\/(\d+)\/)?(.+)$/.exec(name);
  if (!found) return [];
  const [, gpu, rest] = found;
  return [{ name, rank, gpu: gpu ?? null, measure: gpu === undefined ? String(rest) : `gpu/${rest}` }];
}

const KNOWN_MEASURES = new Set(MEASURES.flatMap(({ parts }) => parts.map(({ name }) => name)));
/** Limits, and flags that findings put into words. */
const UNCHARTED = /(total|_max|slowed_by_\w+)$/;

function systemSpecs(curves: readonly Curve[], hosts: Readonly<Record<string, string>>): PageChartSpec[] {
  const telemetry = curves.flatMap(telemetryOf).toSorted((a, b) => a.rank - b.rank || Number(a.gpu) - Number(b.gpu));
  const several = new Set(telemetry.map(({ rank }) => rank)).size > 1;
  const other = [...new Set(telemetry.map(({ measure }) => measure))].filter((name) => !KNOWN_MEASURES.has(name) && !UNCHARTED.test(name));
  const own = other.toSorted().map((name): Measure => ({ title: name, parts: [{ name }], format: metricText, range: { from: 0 } }));
  return [...MEASURES, ...own].flatMap(({ title, parts, format, range }) => {
    const lines = parts.flatMap(({ name, label }) =>
      telemetry
        .filter(({ measure }) => measure === name)
        .map((one) => ({
          name: curveKey(one),
          label: [one.gpu !== null && `GPU ${one.gpu}`, label, several && (hosts[one.rank] ?? `rank ${one.rank}`)].filter(Boolean).join(" · ") || title.toLowerCase(),
        })),
    );
    if (lines.length === 0) return [];
    const drawn = lines.map((line, index) => ({ ...line, colour: colourOf(index), fill: lines.length === 1 }));
    return [{ title, axis: "time" as const, height: SMALL, format, range, lines: drawn }];
  });
}

/** A chart of one metric gets a line for every rank that reports it. */
function withRanks(spec: PageChartSpec, ranks: ReadonlyMap<string, number[]>): PageChartSpec {
  const [line] = spec.lines;
  const others = line && spec.lines.length === 1 ? (ranks.get(line.name) ?? []) : [];
  if (!line || others.length === 0) return spec;
  const lines = others.slice(0, MOST_RANK_LINES - 1).map((rank, index) => ({ ...line, name: curveKey({ name: line.name, rank }), label: `rank ${rank}`, colour: colourOf(index + 1), fill: false }));
  return { ...spec, lines: [{ ...line, label: "rank 0", colour: colourOf(0), fill: false }, ...lines] };
}

const has = (names: ReadonlySet<string>) => (spec: PageChartSpec) => spec.lines.some((line) => names.has(line.name));

/** The charts for the curves a run has. What it reports beyond the usual gets charts of its own. `hosts`: machine by rank. */
export function chartSpecsFor(curves: readonly Curve[], hosts: Readonly<Record<string, string>> = {}): Record<"training" | "engine" | "system", PageChartSpec[]> {
  const names = [...new Set(curves.map(({ name }) => name))];
  const known = new Set(names);
  const ranks = new Map<string, number[]>();
  for (const { name, rank } of curves) if (rank > 0) ranks.set(name, [...(ranks.get(name) ?? []), rank].toSorted((a, b) => a - b));
  const own = names
    .filter((name) => !name.startsWith("system/") && !CHARTED.has(name))
    .toSorted()
    .map((name) => small(name, name, BLUE, { smoothed: name.startsWith("train/") }));
  return {
    training: [...STEP_CHARTS.filter(has(known)), ...own].map((spec) => withRanks(spec, ranks)),
    engine: ENGINE_CHARTS.filter(has(known)),
    system: systemSpecs(curves, hosts),
  };
}

type JobChartsProps = {
  store: CurveStore;
  marks: readonly ChartMark[];
  fetchRange?: FetchRange;
  /** What to say while there is nothing to draw. */
  waiting: string;
  /** Stands next to the loss chart. */
  aside?: ReactNode;
  /** Stands before the charts of the machines. */
  system?: ReactNode;
  /** The machine of each rank, where a run has several. */
  hosts?: Readonly<Record<string, string>>;
};

/** All charts of a run. */
export function JobCharts({ store, marks, fetchRange, waiting, aside, system, hosts }: JobChartsProps) {
  const view = useNewChartsView(store, marks, fetchRange);
  // The set of curves rarely changes; a text can be compared, a new list could not.
  const curves = useSyncExternalStore(store.subscribe, () => JSON.stringify(store.all()));
  const machines = JSON.stringify(hosts ?? {});
  const specs = useMemo(() => chartSpecsFor(JSON.parse(curves) as Curve[], JSON.parse(machines) as Record<string, string>), [curves, machines]);
  const hasLoss = curves.includes('/loss"');

  return (
    <ChartsViewContext value={view}>
      <section aria-label="Training charts" className="mt-3.5 grid gap-3.5 lg:grid-cols-12">
        {hasLoss ? (
          <ChartCard spec={LOSS} className={aside ? "lg:col-span-8" : "lg:col-span-12"}>
            <DrawingTools />
          </ChartCard>
        ) : (
          <Card className={aside ? "lg:col-span-8" : "lg:col-span-12"}>
            <h2 className="text-[13px] font-[590]">Loss</h2>
            <p className="grid h-[300px] place-items-center text-center text-dim">{waiting}</p>
          </Card>
        )}
        {aside && <div className="min-w-0 lg:col-span-4">{aside}</div>}
      </section>
      {hasLoss && (
        <div className="mt-2 flex flex-wrap items-center justify-between gap-x-4">
          <p className="text-xs text-faint max-sm:hidden">Drag over a chart to zoom in. Double-click to show the whole run.</p>
          <RangeTools />
        </div>
      )}
      <ChartGrid label="More training charts" specs={specs.training} />
      {specs.engine.length > 0 && <h2 className="mt-6 text-[13px] font-[590]">Engine</h2>}
      <ChartGrid label="Engine charts" specs={specs.engine} />
      {(system || specs.system.length > 0) && <h2 className="mt-6 text-[13px] font-[590]">System</h2>}
      {system}
      <ChartGrid label="System charts" specs={specs.system} />
    </ChartsViewContext>
  );
}

function ChartGrid({ label, specs }: { label: string; specs: ReturnType<typeof chartSpecsFor>["training"] }) {
  if (specs.length === 0) return null;
  return (
    <section aria-label={label} className="mt-2 grid gap-3.5 sm:grid-cols-2 lg:grid-cols-3">
      {specs.map((spec) => (
        <ChartCard key={spec.title} spec={spec} className={spec.wide ? "sm:col-span-2" : undefined} />
      ))}
    </section>
  );
}
