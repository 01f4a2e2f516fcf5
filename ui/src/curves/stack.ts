/** Lines that stand on one another: each is drawn at its own value on top of what is below it. */
import type { CurvePoints } from "./attempts";
import type { HoveredValue, LineSpec } from "./columns";

type Read = (name: string) => CurvePoints | undefined;

/** Reads curves at the height at which they are drawn. */
export function stackedRead(lines: readonly LineSpec[], read: Read): Read {
  return function height(name: string): CurvePoints | undefined {
    const curve = read(name);
    const below = lines.find((line) => line.name === name)?.below;
    const base = below === undefined ? undefined : height(below);
    if (!curve || !base) return curve && flat(curve, curve.value);
    const under = new Map(base.x.map((x, index) => [pointKey(base, x, index), base.value[index] ?? 0]));
    return flat(curve, curve.value.map((value, index) => value + (under.get(pointKey(curve, curve.x[index], index)) ?? 0)));
  };
}

const pointKey = (curve: CurvePoints, x: number | undefined, index: number) => `${curve.attempt[index]}:${x}`;

/** Thinned curves have a lowest and a highest value; the lowest of a sum is not the sum of the lowest. */
const flat = (curve: CurvePoints, value: number[]): CurvePoints => ({ ...curve, value, low: value, high: value });

/** The value of a line itself, from what lies under a cursor: lines that stand on another are neither thinned nor smoothed. */
export function ownValue(line: LineSpec, lines: readonly LineSpec[], hovered: ReadonlyMap<string, HoveredValue>): HoveredValue | undefined {
  const height = hovered.get(line.label);
  const below = lines.find((other) => other.name === line.below);
  return height === undefined || !below ? height : { raw: height.raw - (hovered.get(below.label)?.raw ?? 0) };
}
