/**
 * Several runs in one chart: a line for the mean of each group of runs, and a band from the lowest to the highest.
 *
 *     const { series, lines } = overlayOf(runs);
 *     store.load({ position: 0, series });                       // a CurveStore
 *     <ChartsViewContext value={useNewChartsView(store, [])}>
 *       <ChartCard spec={{ ...METRICS.loss, id: "overlay", axis: "step", height: 300, lines }} />
 */
import type { CurvePoints, LineSpec } from "./plot-data";
import { paletteColour } from "./series-colours";

export type OverlayRun = {
  id: string;
  label: string;
  /** Runs of one group, such as those that differ in their seed alone, are one line. */
  group: string;
  /** The number of the group's colour; groups are numbered as they come unless told. */
  colour?: number;
  /** Left out of the mean, so that the mean does not jump where the run ends: dashed, with a cross at its end. */
  failed?: boolean;
  curve: CurvePoints;
};

/** As many positions as a wide chart has pixels. */
const MOST_POSITIONS = 1_000;

/** The value of a run at a position: on the line between two points, or nothing outside of what it reported. */
function valueAt(x: readonly number[], value: readonly number[], at: number): number | null {
  const last = x.length - 1;
  if (last < 0 || at < (x[0] ?? 0) || at > (x[last] ?? 0)) return null;
  let [low, high] = [0, last];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((x[middle] ?? 0) < at) low = middle + 1;
    else high = middle;
  }
  const [x1, y1] = [x[low] ?? 0, value[low] ?? Number.NaN];
  if (x1 === at || low === 0) return y1;
  const [x0, y0] = [x[low - 1] ?? 0, value[low - 1] ?? Number.NaN];
  return y0 + ((y1 - y0) * (at - x0)) / (x1 - x0);
}

/** What holds of a run: of steps that were done twice, what the last attempt did. */
function newest(curve: CurvePoints): { x: number[]; value: number[]; low: number[]; high: number[] } {
  const rows = curve.x.map((x, index) => ({ x, attempt: curve.attempt[index] ?? 1, index }));
  const begins = new Map<number, number>();
  for (const { x, attempt } of rows) begins.set(attempt, Math.min(x, begins.get(attempt) ?? x));
  const kept = rows.filter(({ x, attempt }) => [...begins].every(([later, begin]) => later <= attempt || x < begin)).toSorted((a, b) => a.x - b.x);
  const column = (values: readonly number[]) => kept.map(({ index }) => values[index] ?? Number.NaN);
  return { x: column(curve.x), value: column(curve.value), low: column(curve.low), high: column(curve.high) };
}

const curveNamed = (name: string, x: number[], value: number[], low: number[], high: number[]): CurvePoints => {
  const last = x.at(-1);
  return { name, rank: 0, axis: "step", x, value, low, high, attempt: x.map(() => 1), last: last === undefined ? null : { x: last, attempt: 1, value: value.at(-1) ?? Number.NaN } };
};

/** The mean and the spread of some runs, wherever one of them has a value. */
function meanOf(name: string, curves: readonly CurvePoints[]): CurvePoints {
  const [only] = curves;
  if (curves.length === 1 && only) return { ...only, name, rank: 0 };
  const runs = curves.map(newest);
  let positions = [...new Set(runs.flatMap(({ x }) => x))].toSorted((a, b) => a - b);
  const every = Math.ceil(positions.length / MOST_POSITIONS);
  if (every > 1) positions = positions.filter((_x, index) => index % every === 0 || index === positions.length - 1);
  const [x, value, low, high]: [number[], number[], number[], number[]] = [[], [], [], []];
  for (const at of positions) {
    const read = (column: "value" | "low" | "high") => runs.flatMap((run) => valueAt(run.x, run[column], at) ?? []);
    const means = read("value");
    if (means.length === 0) continue;
    x.push(at);
    value.push(means.reduce((sum, one) => sum + one, 0) / means.length);
    low.push(Math.min(...read("low")));
    high.push(Math.max(...read("high")));
  }
  return curveNamed(name, x, value, low, high);
}

/** What a chart of several runs draws: load `series` into a store, and give `lines` to the chart. */
export function overlayOf(runs: readonly OverlayRun[]): { series: CurvePoints[]; lines: LineSpec[] } {
  const groups = new Map<string, OverlayRun[]>();
  for (const run of runs) groups.set(run.group, [...(groups.get(run.group) ?? []), run]);
  const series: CurvePoints[] = [];
  const lines: LineSpec[] = [];
  [...groups].forEach(([group, members], index) => {
    const colour = paletteColour(members[0]?.colour ?? index);
    const whole = members.filter(({ failed }) => !failed);
    if (whole.length > 0) {
      series.push(meanOf(`group:${group}`, whole.map(({ curve }) => curve)));
      lines.push({ name: `group:${group}`, label: whole.length === 1 ? (whole[0]?.label ?? group) : `${group} (${whole.length} runs)`, colour });
    }
    for (const { id, label, curve } of members.filter(({ failed }) => failed)) {
      series.push({ ...curve, name: `run:${id}`, rank: 0 });
      lines.push({ name: `run:${id}`, label: `${label} (failed)`, colour, failed: true });
    }
  });
  return { series, lines };
}
