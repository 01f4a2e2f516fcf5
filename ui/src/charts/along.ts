/** What charts of a run can be drawn along: its steps, or the time, tokens and epochs that belong to them. */
import { countText } from "@/text/numbers";
import { clockText, epochText } from "@/text/run-words";
import type { CurvePoints, Range } from "./plot-data";

export type Along = "step" | "time" | "tokens" | "epoch";

/** When the steps of an attempt happened: pairs of step and seconds since 1970. */
export type Clock = { attempt: number; x: number[]; time: number[] };

export const ALONG_NAMES: Record<Along, string> = { step: "Step", time: "Time", tokens: "Tokens", epoch: "Epoch" };

/** Series that count tokens, the first one that a run has. */
export const TOKEN_SERIES = ["train/tokens_seen", "train/num_input_tokens_seen", "train/num_tokens", "train/tokens"];
export const EPOCH_SERIES = "train/epoch";

type Pairs = { attempt: number; step: number[]; value: number[] };

/** Where steps lie on another axis: on straight lines between known pairs, each attempt by itself. */
export class StepMap {
  #pieces: Pairs[];

  constructor(pieces: readonly Pairs[]) {
    this.#pieces = pieces.filter(({ step }) => step.length > 0).toSorted((a, b) => a.attempt - b.attempt);
  }

  static ofClock(clock: readonly Clock[]): StepMap {
    return new StepMap(clock.map(({ attempt, x, time }) => ({ attempt, step: x, value: time })));
  }

  /** Of a series that grows with every step. It begins at zero. */
  static ofCurve(curve: CurvePoints): StepMap {
    const pieces = new Map<number, Pairs>();
    curve.x.forEach((step, index) => {
      const attempt = curve.attempt[index] ?? 1;
      let piece = pieces.get(attempt);
      if (!piece) pieces.set(attempt, (piece = { attempt, step: [], value: [] }));
      piece.step.push(step);
      piece.value.push(curve.value[index] ?? 0);
    });
    // A thinned point is the mean of its steps; the newest value is known as it is.
    const newest = curve.last && Number.isFinite(curve.last.value) ? pieces.get(curve.last.attempt) : undefined;
    if (newest && curve.last) {
      newest.step[newest.step.length - 1] = curve.last.x;
      newest.value[newest.value.length - 1] = curve.last.value;
    }
    const first = [...pieces.values()].toSorted((a, b) => a.attempt - b.attempt)[0];
    if (first && (first.step[0] ?? 0) > 0) {
      first.step.unshift(0);
      first.value.unshift(0);
    }
    return new StepMap([...pieces.values()]);
  }

  static ofEpochs(stepsPerEpoch: number): StepMap {
    return new StepMap([{ attempt: 1, step: [0, stepsPerEpoch], value: [0, 1] }]);
  }

  get isEmpty(): boolean {
    return this.#pieces.length === 0;
  }

  at(step: number, attempt: number): number {
    const piece = this.#pieces.findLast((one) => one.attempt <= attempt) ?? this.#pieces[0];
    return piece ? between(piece.step, piece.value, step) : step;
  }

  /** The steps that lie in a range of the other axis; null where none does. */
  steps({ from, to }: Range): Range | null {
    let [first, last] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    for (const { step, value } of this.#pieces) {
      if ((value[0] ?? 0) > to && this.#pieces.length > 1) continue;
      first = Math.min(first, between(value, step, from));
      last = Math.max(last, between(value, step, to));
    }
    return first <= last ? { from: first, to: last } : null;
  }
}

/** The value at a position, on the line between its neighbours; the first and the last line go on beyond the ends. */
function between(positions: readonly number[], values: readonly number[], at: number): number {
  const last = positions.length - 1;
  if (last === 0) return values[0] ?? 0;
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((positions[middle] ?? 0) <= at) low = middle;
    else high = middle;
  }
  const [x0, x1, y0, y1] = [positions[low] ?? 0, positions[high] ?? 0, values[low] ?? 0, values[high] ?? 0];
  return x1 === x0 ? y1 : y0 + ((y1 - y0) * (at - x0)) / (x1 - x0);
}

/** The same curve along another axis. */
export function mapped(curve: CurvePoints, map: StepMap): CurvePoints {
  const { gaps, last } = curve;
  return {
    ...curve,
    x: curve.x.map((step, index) => map.at(step, curve.attempt[index] ?? 1)),
    last: last && { ...last, x: map.at(last.x, last.attempt) },
    ...(gaps ? { gaps: { ...gaps, x: gaps.x.map((step, index) => map.at(step, gaps.attempt[index] ?? 1)) } } : {}),
  };
}

/** A position on an axis in words: "step 1,200", "14:03:20", "1,200,000 tokens", "epoch 1.5". */
export function positionText(along: Along, x: number): string {
  if (along === "time") return clockText(x);
  if (along === "tokens") return `${countText(x)} tokens`;
  return along === "epoch" ? `epoch ${epochText(x)}` : `step ${countText(x)}`;
}
