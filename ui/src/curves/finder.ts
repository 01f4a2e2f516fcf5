/** What a learning-rate finder draws: loss over learning rate, in hundredths of the picture's width and height. */
import type { FinderPoint } from "@/api/task-results";
import type { CurvePoints } from "./attempts";
import { smooth } from "./smooth";

const LIVE_SMOOTHING = 0.7;

/** The points of a finder that is still at work, from the two curves that it reports. */
export function livePoints(rates: CurvePoints | undefined, losses: CurvePoints | undefined): FinderPoint[] {
  if (!rates || !losses) return [];
  const rateAt = new Map(rates.x.map((step, index) => [step, rates.value[index]]));
  const points = losses.x.flatMap((step, index) => {
    const [rate, loss] = [rateAt.get(step), losses.value[index]];
    return rate === undefined || loss === undefined || rate <= 0 ? [] : [{ rate, loss }];
  });
  const smoothed = smooth(points.map((point) => point.loss), LIVE_SMOOTHING);
  return points.map((point, index) => ({ ...point, smoothed: smoothed[index] ?? point.loss }));
}

export type Frame = { left: number; right: number; low: number; high: number };

/**
 * Ends of both axes. At the end of a sweep the loss shoots up, which would press everything that matters
 * into a line at the bottom: the picture ends a little above where the loss began.
 */
export function frameOf(points: readonly FinderPoint[]): Frame | null {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return null;
  const values = points.map((point) => point.smoothed).filter(Number.isFinite);
  const low = Math.min(...values);
  const fall = first.smoothed - low;
  const high = fall > 0 ? Math.min(Math.max(...values), first.smoothed + fall * 0.6) : Math.max(...values);
  const padding = Math.max(high - low, Math.abs(low) * 0.01, 1e-6) * 0.08;
  const [left, right] = [Math.log10(first.rate), Math.log10(last.rate)];
  return { left, right: right > left ? right : left + 1, low: low - padding, high: high + padding };
}

export const across = ({ left, right }: Frame, rate: number) => ((Math.log10(rate) - left) / (right - left)) * 100;
export const down = ({ low, high }: Frame, loss: number) => (1 - (loss - low) / (high - low)) * 100;

/** What of the line lies inside the picture, as an SVG path; a piece above its top is left out. */
export function pathOf(points: readonly FinderPoint[], frame: Frame, read: (point: FinderPoint) => number): string {
  let pen = "M";
  let path = "";
  for (const point of points) {
    const y = down(frame, read(point));
    if (!Number.isFinite(y) || y < -60) {
      pen = "M";
      continue;
    }
    path += `${pen}${across(frame, point.rate).toFixed(2)} ${y.toFixed(2)}`;
    pen = "L";
  }
  return path;
}

/** Powers of ten between the ends. */
export function decades({ left, right }: Frame): number[] {
  const ticks: number[] = [];
  for (let power = Math.ceil(left - 1e-9); power <= right + 1e-9; power += 1) ticks.push(10 ** power);
  return ticks;
}
