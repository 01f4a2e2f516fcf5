/** How figures are written: few digits, always the same ones, never a false zero. */

/** A number as a run says it in JSON, which has no word for NaN and the infinities: they come as text. */
export function numberOf(value: unknown): number {
  return typeof value === "number" ? value : value === "Infinity" || value === "-Infinity" ? Number(value) : Number.NaN;
}

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

/** "1 step", "2 steps". */
export const counted = (count: number, one: string, many = `${one}s`) => `${countText(count)} ${count === 1 ? one : many}`;
