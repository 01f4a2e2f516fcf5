/** The charts of the job page: which curves of a run they show, in which colours and units. */
import { type ReactNode, useMemo, useSyncExternalStore } from "react";
import { Card } from "@/components/card";
import { bytesText, metricText, percentText, secondsText, shareText } from "@/text/numbers";
import { ChartCard } from "./chart-card";
import { ENGINE_MEMORY, METRICS, type PageChartSpec, STEP_PARTS } from "./chart-spec";
import { ChartsViewContext, DrawingTools, type FetchRange, RangeTools, useNewChartsView } from "./charts-view";
import type { CurveStore } from "./curve-store";
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

const time = (title: string, name: string, colour: string, spec: Partial<PageChartSpec> = {}): PageChartSpec =>
  small(title, name, colour, { axis: "time", range: { from: 0 }, ...spec });

const gpuCharts = (index: string): PageChartSpec[] => {
  const name = (value: string) => `system/gpu/${index}/${value}`;
  return [
    time(`GPU ${index} utilization`, name("utilization"), TEAL, { range: { from: 0, to: 100 }, format: percentText }),
    time(`GPU ${index} memory`, name("memory_used"), VIOLET, { format: bytesText }),
    time(`GPU ${index} temperature`, name("temperature"), AMBER, { format: (value) => `${Math.round(value)} °C` }),
    time(`GPU ${index} power`, name("power"), GREEN, { format: (value) => `${Math.round(value)} W` }),
    time(`GPU ${index} fan`, name("fan"), BLUE, { range: { from: 0, to: 100 }, format: percentText }),
  ];
};

const MACHINE_CHARTS: PageChartSpec[] = [
  time("CPU utilization", "system/cpu/utilization", BLUE, { range: { from: 0, to: 100 }, format: percentText }),
  time("Machine memory", "system/ram/used", VIOLET, { format: bytesText }),
  time("Training process memory", "system/process/ram", TEAL, { format: bytesText }),
];

const has = (names: ReadonlySet<string>) => (spec: PageChartSpec) => spec.lines.some((line) => names.has(line.name));

/** The charts for the curves a run has. What it reports beyond the usual gets charts of its own. */
export function chartSpecsFor(names: readonly string[]): Record<"training" | "engine" | "system", PageChartSpec[]> {
  const known = new Set(names);
  const own = names
    .filter((name) => !name.startsWith("system/") && !CHARTED.has(name))
    .toSorted()
    .map((name) => small(name, name, BLUE, { smoothed: name.startsWith("train/") }));
  const gpus = [...new Set(names.flatMap((name) => /^system\/gpu\/(\d+)\//.exec(name)?.[1] ?? []))].toSorted((a, b) => Number(a) - Number(b));
  return {
    training: [...STEP_CHARTS.filter(has(known)), ...own],
    engine: ENGINE_CHARTS.filter(has(known)),
    system: [...gpus.flatMap(gpuCharts), ...MACHINE_CHARTS].filter(has(known)),
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
};

/** All charts of a run. */
export function JobCharts({ store, marks, fetchRange, waiting, aside }: JobChartsProps) {
  const view = useNewChartsView(store, marks, fetchRange);
  // The set of curves rarely changes; a text can be compared, a new list could not.
  const names = useSyncExternalStore(store.subscribe, () => store.names().join("\n"));
  const specs = useMemo(() => chartSpecsFor(names.split("\n").filter(Boolean)), [names]);
  const hasLoss = names.includes("/loss");

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
      {specs.system.length > 0 && <h2 className="mt-6 text-[13px] font-[590]">System</h2>}
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
