/** How figures are written: counts, metrics, bytes, money and durations; few digits, always the same ones, never a false zero. */

/** JSON has no word for these numbers: they come as text. */
const NON_FINITE: readonly unknown[] = ["NaN", "Infinity", "-Infinity"];

export const isNonFinite = (value: unknown) => NON_FINITE.includes(value);

/** Whether a run says a number. */
export const isNumber = (value: unknown) => typeof value === "number" || isNonFinite(value);

/** A number as a run says it in JSON. */
export const numberOf = (value: unknown): number => (isNumber(value) ? Number(value) : Number.NaN);

export const countText = (value: number) => (Number.isFinite(value) ? Math.round(value).toLocaleString("en-GB") : String(value));

/** Losses, norms and rates: four significant digits, and powers of ten where decimals would be mostly zeros. */
export function metricText(value: number): string {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return String(value);
  if (size === 0) return "0";
  if (size < 0.001 || size >= 1e9) return shortExponent(value.toExponential(2));
  if (size >= 1000) return countText(value);
  return String(Number(value.toPrecision(4)));
}

/** "1e-4" for 0.0001 and "0.05" for 0.05, as people write a setting. */
export function settingText(value: number): string {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return String(value);
  return size !== 0 && size < 0.001 ? shortExponent(value.toExponential(3)) : value.toLocaleString("en-GB", { maximumSignificantDigits: 6 });
}

/** "1.00e-4" says no more than "1e-4". */
const shortExponent = (text: string) => text.replace(/\.?0*e/, "e").replace("e+", "e");

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Decimal units, as disks and the plan count. */
export function bytesText(bytes: number): string {
  if (!Number.isFinite(bytes)) return String(bytes);
  if (bytes <= 0) return "0 B";
  let power = Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log10(bytes) / 3));
  // 999.96 MB would be written as 1,000 MB.
  if (Math.round((bytes / 1000 ** power) * 10) >= 10_000 && power < BYTE_UNITS.length - 1) power += 1;
  const value = bytes / 1000 ** power;
  return `${value.toLocaleString("en-GB", { maximumFractionDigits: power > 0 && value < 100 ? 1 : 0 })} ${BYTE_UNITS[power]}`;
}

/** "771 k", "1.2 B": the size of a model. */
export function parametersText(count: number): string {
  if (count < 1000 || !Number.isFinite(count)) return String(count);
  // 999.9 M would be written as 1,000 M.
  const [divisor, unit] = count < 999.5e3 ? [1e3, "k"] : count < 999.5e6 ? [1e6, "M"] : [1e9, "B"];
  const value = count / divisor;
  return `${value.toLocaleString("en-GB", { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 })} ${unit}`;
}

export const percentText = (value: number) => `${Math.round(value)} %`;

/** A share of one: "12.5 %". */
export const shareText = (value: number) => `${(value * 100).toFixed(1)} %`;

/** "1 step", "2 steps". */
export const counted = (count: number, one: string, many = `${one}s`) => `${countText(count)} ${count === 1 ? one : many}`;

type Range = { low: number; high: number };

const CENTS_BELOW = 100;

const digits = (value: number, cents: boolean) =>
  value.toLocaleString("en-GB", cents ? { minimumFractionDigits: 2, maximumFractionDigits: 2 } : { maximumFractionDigits: 0 });

/** "$0", "under $0.01", "$0.42", "$1,234". */
export function moneyText(value: number): string {
  if (value === 0) return "$0";
  if (value > 0 && value < 0.005) return "under $0.01";
  return `$${digits(value, value < CENTS_BELOW && !Number.isInteger(value))}`;
}

/** "$2.40–3.10": from the least to the most; one amount where both are written the same. */
export function moneyRange({ low, high }: Range): string {
  if (high < 0.005) return moneyText(high);
  const cents = high < CENTS_BELOW;
  const [least, most] = [digits(low, cents), digits(high, cents)];
  return least === most ? `$${most}` : `$${least}–${most}`;
}

/** "$0.95 / h". */
export const hourlyText = (rate: Range) => `${moneyRange(rate)} / h`;

const UNITS = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
  ["s", 1],
] as const;

/** "6 h 12 m": the two largest units, which is as exact as an estimate or a memory needs to be. */
export function durationText(seconds: number): string {
  if (!Number.isFinite(seconds)) return String(seconds);
  let rest = Math.max(0, Math.round(seconds));
  if (rest === 0) return seconds > 0 ? "under 1 s" : "0 s";
  const first = UNITS.findIndex(([, length]) => rest >= length);
  const parts: string[] = [];
  for (const [unit, length] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count > 0) parts.push(`${count} ${unit}`);
  }
  return parts.join(" ");
}

/** "310 ms", "1.45 s": the length of a step, where fractions count. */
export function secondsText(seconds: number): string {
  if (seconds >= 100 || !Number.isFinite(seconds)) return durationText(seconds);
  if (seconds >= 0.9995) return `${Number(seconds.toPrecision(3))} s`;
  const thousandths = seconds * 1000;
  return `${Number(thousandths.toPrecision(thousandths < 1 ? 1 : 3))} ms`;
}

/** A time that is only expected: "about 3 m", but "under 1 s". */
export const aboutText = (time: string) => time.replace(/^(?!under)/, "about ");

const HOUR = 3600;

/** Long times without their small units: nobody plans a week to the minute. */
export function hoursText(hours: number): string {
  const seconds = hours * HOUR;
  if (seconds >= 48 * HOUR) return durationText(Math.round(hours) * HOUR);
  return durationText(seconds < 60 ? seconds : Math.round(seconds / 60) * 60);
}

const number = (value: number) => value.toLocaleString("en-GB", { maximumFractionDigits: 3 });

/** Sizes are stored in billions of parameters; below one billion people say millions. */
export function modelSizeText(billions: number | null): string {
  if (billions === null) return "–";
  if (billions < 0.001) return `${number(billions * 1e6)} k`;
  return billions < 1 ? `${number(billions * 1000)} M` : `${number(billions)} B`;
}

/** Ends a reason with a full stop, unless it brings its own end. */
export const sentence = (text: string) => (text === "" || /[.!?]$/.test(text) ? text : `${text}.`);
