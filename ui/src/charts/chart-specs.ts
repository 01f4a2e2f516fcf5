/** The charts of a run: which curves they show, in which colours and units. */
import { ENGINE_MEMORY, STEP_PARTS } from "@/curves/engine-names";
import { secondsText } from "@/text/duration";
import { bytesText, countText, metricText } from "@/text/numbers";
import type { ChartSpec } from "./chart-canvas";

const VIOLET = "#a98bfa";
const TEAL = "#33c2cf";
const BLUE = "#6d8fe8";
const AMBER = "#f2b84b";
const GREEN = "#5be0b0";

const percent = (value: number) => `${Math.round(value)} %`;
const share = (value: number) => `${(value * 100).toFixed(1)} %`;
const SMALL = 128;

export const LOSS: ChartSpec = {
  title: "Loss",
  axis: "step",
  height: 300,
  fills: true,
  smoothed: true,
  mayBeLogarithmic: true,
  format: metricText,
  lines: [
    { name: "train/loss", label: "train", colour: VIOLET },
    { name: "eval/loss", label: "eval", colour: TEAL, dots: true },
  ],
};

const small = (title: string, name: string, colour: string, spec: Partial<ChartSpec> = {}): ChartSpec => ({
  title,
  axis: "step",
  height: SMALL,
  format: metricText,
  lines: [{ name, label: title.toLowerCase(), colour, fill: true }],
  ...spec,
});

const STEP_CHARTS: ChartSpec[] = [
  small("Learning rate", "train/learning_rate", BLUE, { range: { from: 0 } }),
  small("Gradient norm", "train/grad_norm", VIOLET, { range: { from: 0 }, smoothed: true }),
  small("Tokens per second", "train/tokens_per_second", TEAL, { range: { from: 0 }, smoothed: true, format: countText }),
  small("Time of a step", "train/step_seconds", AMBER, { range: { from: 0 }, smoothed: true, format: secondsText }),
  small("Accuracy in evaluation", "eval/accuracy", GREEN, {
    format: share,
    lines: [{ name: "eval/accuracy", label: "accuracy", colour: GREEN, dots: true }],
  }),
  small("Perplexity in evaluation", "eval/perplexity", AMBER, {
    lines: [{ name: "eval/perplexity", label: "perplexity", colour: AMBER, dots: true }],
  }),
];

const engine = (title: string, lines: ChartSpec["lines"], spec: Partial<ChartSpec> = {}): ChartSpec => ({
  title,
  axis: "step",
  height: SMALL,
  format: metricText,
  range: { from: 0 },
  lines,
  ...spec,
});

const gigabytes = (value: number) => `${Number(value.toPrecision(3))} GB/s`;

const ENGINE_CHARTS: ChartSpec[] = [
  engine(
    "One step",
    [
      { name: STEP_PARTS.computing, label: "computing", colour: TEAL, fill: true },
      { name: STEP_PARTS.weights, label: "waiting for weights", colour: AMBER, below: STEP_PARTS.computing },
      { name: STEP_PARTS.optimizer, label: "waiting for the optimizer", colour: VIOLET, below: STEP_PARTS.weights },
    ],
    { format: secondsText, wide: true },
  ),
  engine(
    "Host–GPU link",
    [
      { name: "engine/link_in_gb_per_second", label: "in", colour: BLUE },
      { name: "engine/link_out_gb_per_second", label: "out", colour: AMBER },
    ],
    { format: gigabytes },
  ),
  small("TFLOP/s", "engine/tflops", TEAL, { range: { from: 0 }, smoothed: true }),
  small("MFU, of the GPU’s peak", "engine/mfu", GREEN, { range: { from: 0 }, smoothed: true, format: share }),
  engine(
    "Memory in use",
    [
      { name: ENGINE_MEMORY.GPU, label: "GPU", colour: VIOLET },
      { name: ENGINE_MEMORY.Host, label: "host", colour: BLUE },
    ],
    { format: bytesText },
  ),
];

const namesIn = (specs: readonly ChartSpec[]) => specs.flatMap((spec) => spec.lines.map((line) => line.name));

/** Curves that are in one of the charts above, or say nothing that needs one. */
const CHARTED = new Set(["train/loss", "eval/loss", "train/tokens_seen", "train/trained_tokens", ...namesIn(STEP_CHARTS), ...namesIn(ENGINE_CHARTS)]);

const time = (title: string, name: string, colour: string, spec: Partial<ChartSpec> = {}): ChartSpec =>
  small(title, name, colour, { axis: "time", range: { from: 0 }, ...spec });

const gpuCharts = (index: string): ChartSpec[] => {
  const name = (value: string) => `system/gpu/${index}/${value}`;
  return [
    time(`GPU ${index}`, name("utilization"), TEAL, { range: { from: 0, to: 100 }, format: percent }),
    time(`GPU ${index} memory`, name("memory_used"), VIOLET, { format: bytesText }),
    time(`GPU ${index} temperature`, name("temperature"), AMBER, { format: (value) => `${Math.round(value)} °C` }),
    time(`GPU ${index} power`, name("power"), GREEN, { format: (value) => `${Math.round(value)} W` }),
    time(`GPU ${index} fan`, name("fan"), BLUE, { range: { from: 0, to: 100 }, format: percent }),
  ];
};

const MACHINE_CHARTS: ChartSpec[] = [
  time("CPU", "system/cpu/utilization", BLUE, { range: { from: 0, to: 100 }, format: percent }),
  time("Memory of the machine", "system/ram/used", VIOLET, { format: bytesText }),
  time("Memory of the training", "system/process/ram", TEAL, { format: bytesText }),
];

const has = (names: ReadonlySet<string>) => (spec: ChartSpec) => spec.lines.some((line) => names.has(line.name));

/** The charts for the curves a run has. What it reports beyond the usual gets charts of its own. */
export function chartSpecsFor(names: readonly string[]): Record<"training" | "engine" | "system", ChartSpec[]> {
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
