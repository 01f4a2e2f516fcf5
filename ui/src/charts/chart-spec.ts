/** What a chart shows. Shared by the job page, comparisons and the card. */
import { countText, metricText, secondsText, shareText } from "@/text/numbers";
import type { PlotSettings } from "./plot";
import type { LineSpec } from "./plot-data";

export type ChartSpec = {
  /** Names the chart on its page, where it has to be found again. */
  id?: string;
  title: string;
  lines: readonly LineSpec[];
  axis: "step" | "time";
  format: (value: number) => string;
  range?: PlotSettings["range"];
  /** Whether smoothing applies; a learning rate is exact. */
  smoothed?: boolean;
  /** Whether the logarithmic scale applies. */
  mayBeLogarithmic?: boolean;
  height: number;
  /** Grows with its card, which may stand next to a taller one. */
  fills?: boolean;
  /** Takes two columns of a grid. */
  wide?: boolean;
  /** What is counted along a step axis, where the curves themselves are along tokens. */
  over?: "tokens";
};

/** A chart on a page of the app. */
export type PageChartSpec = ChartSpec;

/** What the engine reports about its own steps. Absent where everything stays on one device. */
export const STEP_PARTS = {
  computing: "engine/computing_seconds",
  weights: "engine/waiting_for_weights_seconds",
  optimizer: "engine/waiting_for_optimizer_seconds",
} as const;

export const ENGINE_MEMORY = { GPU: "engine/gpu_reserved_bytes", Host: "engine/host_bytes" } as const;

type MetricSpec = Pick<ChartSpec, "title" | "format" | "range" | "smoothed" | "mayBeLogarithmic">;

/** How the usual metrics of a training run are drawn. */
export const METRICS = {
  loss: { title: "Loss", format: metricText, smoothed: true, mayBeLogarithmic: true },
  learningRate: { title: "Learning rate", format: metricText, range: { from: 0 } },
  gradNorm: { title: "Gradient norm", format: metricText, range: { from: 0 }, smoothed: true },
  perplexity: { title: "Perplexity", format: metricText, smoothed: true, mayBeLogarithmic: true },
  accuracy: { title: "Accuracy", format: shareText, smoothed: true },
  stepSeconds: { title: "Step time", format: secondsText, range: { from: 0 }, smoothed: true },
  samplesPerSecond: { title: "Samples per second", format: metricText, range: { from: 0 }, smoothed: true },
  tokensPerSecond: { title: "Tokens per second", format: countText, range: { from: 0 }, smoothed: true },
} satisfies Record<string, MetricSpec>;
