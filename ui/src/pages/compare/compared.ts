/** What a comparison draws and says, from the runs themselves. */
import { measured } from "@/api/summary";
import type { Curve, Curves, Job, Outcome } from "@/api/types";
import { METRICS, type PageChartSpec } from "@/charts/chart-spec";
import { countText, durationText, metricText } from "@/text/numbers";

/** One for each run that can be compared at once; neighbours differ in hue and in lightness. */
const RUN_COLOURS = ["var(--color-violet-soft)", "var(--color-teal-soft)", "var(--color-warning)", "var(--color-danger-soft)", "var(--color-success-soft)", "var(--color-primary-soft)", "var(--color-pink-soft)", "var(--color-grey-soft)"] as const;

export const colourOf = (index: number) => RUN_COLOURS[index % RUN_COLOURS.length] ?? RUN_COLOURS[0];

/** Names that tell runs apart, even those that share one. */
export function labelsOf(jobs: readonly Pick<Job, "name">[]): string[] {
  return jobs.map(({ name }, index) => (jobs.some((other, at) => at !== index && other.name === name) ? `${name} (${index + 1})` : name));
}

export type Along = "step" | "tokens";

const nameIn = (index: number, name: string) => `${index}:${name}`;

const CHARTS: { name: string; spec: Omit<PageChartSpec, "lines" | "axis"> }[] = [
  { name: "train/loss", spec: { ...METRICS.loss, height: 280 } },
  { name: "eval/loss", spec: { title: "Eval loss", height: 280, format: metricText, mayBeLogarithmic: true } },
  { name: "train/learning_rate", spec: { ...METRICS.learningRate, height: 180 } },
  { name: "train/tokens_per_second", spec: { ...METRICS.tokensPerSecond, height: 180 } },
];

export const COMPARED_SERIES = [...CHARTS.map(({ name }) => name), "train/tokens_seen"];

/** A chart for each curve that at least one of the runs has. */
export function comparedChartSpecs(labels: readonly string[], curves: readonly Curves[], along: Along): PageChartSpec[] {
  return CHARTS.flatMap(({ name, spec }) => {
    const lines = labels.flatMap((label, index) =>
      curves[index]?.series.some((curve) => curve.name === name && curve.rank === 0) ? [{ name: nameIn(index, name), label, colour: colourOf(index), dots: name === "eval/loss" }] : [],
    );
    return lines.length === 0 ? [] : [{ ...spec, axis: "step" as const, ...(along === "tokens" ? { over: "tokens" as const } : {}), lines }];
  });
}

/** All curves in one list, each named with the index of its run; along tokens where the run reports how many it had seen. */
export function comparedSeries(curves: readonly Curves[], along: Along): Curve[] {
  return curves.flatMap(({ series }, index) => {
    const mine = series.filter((curve) => curve.rank === 0 && curve.axis === "step");
    const tokens = mine.find((curve) => curve.name === "train/tokens_seen");
    return mine.flatMap((curve) => {
      if (along === "tokens" && !tokens) return [];
      const xOf = (step: number) => (along === "tokens" && tokens ? Math.round(valueNear(tokens, step)) : step);
      const last = curve.last && { ...curve.last, x: xOf(curve.last.x) };
      return [{ ...curve, name: nameIn(index, curve.name), x: curve.x.map(xOf), last }];
    });
  });
}

/** The value of a growing curve at a step, on the line between its neighbours. */
export function valueNear({ x, value }: Pick<Curve, "x" | "value">, step: number): number {
  const after = x.findIndex((position) => position >= step);
  const last = x.length - 1;
  const [to, from] = after === -1 ? [last, last - 1] : [after, after - 1];
  const [x1, y1] = [x[to] ?? 0, value[to] ?? 0];
  // Before the first point there is the beginning: no step, and no token.
  const [x0, y0] = from < 0 ? [0, 0] : [x[from] ?? 0, value[from] ?? 0];
  return x1 === x0 ? y1 : y0 + ((y1 - y0) * (step - x0)) / (x1 - x0);
}

type Figure = { name: string; values: (number | null)[]; text: (value: number) => string; best: number | null };

const percentText = (value: number) => `${(value * 100).toFixed(1)} %`;

/** The figures of the runs side by side. `best` is the index of the best run, where better has a meaning. */
export function figuresOf(outcomes: readonly Outcome[]): Figure[] {
  const of = (read: (outcome: Outcome) => number | null | undefined) => outcomes.map((outcome) => read(outcome) ?? null);
  const final = (name: string) => of((outcome) => measured(outcome.final[name]));
  const rows: (Omit<Figure, "best"> & { better?: "low" | "high" })[] = [
    { name: "Best eval loss", better: "low", text: metricText, values: of(({ best_eval_loss: bestEvalLoss }) => bestEvalLoss) },
    { name: "Best step", text: countText, values: of(({ best_step: bestStep }) => bestStep) },
    { name: "Final eval loss", better: "low", text: metricText, values: final("eval/loss") },
    { name: "Final loss", better: "low", text: metricText, values: final("train/loss") },
    { name: "Final eval perplexity", better: "low", text: metricText, values: final("eval/perplexity") },
    { name: "Final eval accuracy", better: "high", text: percentText, values: final("eval/accuracy") },
    { name: "Tokens per second", better: "high", text: countText, values: of(({ tokens_per_second: tokensPerSecond }) => tokensPerSecond) },
    { name: "Time taken", better: "low", text: durationText, values: of(({ seconds }) => seconds) },
    { name: "Steps", text: countText, values: of(({ steps }) => steps) },
    { name: "Tokens seen", text: countText, values: of(({ tokens }) => tokens) },
  ];
  return rows.filter((row) => row.values.some((value) => value !== null)).map(({ better, ...row }) => ({ ...row, best: better ? bestOf(row.values, better) : null }));
}

function bestOf(values: readonly (number | null)[], better: "low" | "high"): number | null {
  // A run that diverged did not do best.
  const known = values.filter((value) => value !== null && Number.isFinite(value)) as number[];
  if (known.length < 2) return null;
  const best = better === "low" ? Math.min(...known) : Math.max(...known);
  // Two that are equal are both as good; neither stands out.
  return known.filter((value) => value === best).length === 1 ? values.indexOf(best) : null;
}
