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
