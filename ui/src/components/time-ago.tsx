/** Times relative to now, with the exact time behind them. */
import { useEffect, useState } from "react";

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 365 * 24 * 3600],
  ["month", 30 * 24 * 3600],
  ["day", 24 * 3600],
  ["hour", 3600],
  ["minute", 60],
];

const format = new Intl.RelativeTimeFormat("en-GB", { numeric: "auto" });

/** "3 hours ago", "in 2 days", "just now". */
export function relativeTime(when: Date, now: Date): string {
  const seconds = (when.getTime() - now.getTime()) / 1000;
  for (const [unit, length] of UNITS) {
    const count = Math.trunc(seconds / length);
    // "2 hours ago" stays true until a third has passed, but 30 days from now is not "in 29 days" a second later.
    if (count !== 0) return format.format(count > 0 ? Math.round(seconds / length) : count, unit);
  }
  return "just now";
}

/** The exact moment, in the reader's time zone. */
export function exactTime(when: Date): string {
  return when.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** Milliseconds since 1970, read again `every` so many milliseconds; only once while `ticking` is false. */
export function useNow(ticking = true, every = 1000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!ticking) return;
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [ticking, every]);
  return now;
}

/** "3 hours ago", with the exact moment on hover; keeps itself true while the page stays open. */
export function TimeAgo({ at }: { at: string }) {
  const now = new Date(useNow(true, 30_000));
  const when = new Date(at);
  return (
    <time dateTime={at} title={exactTime(when)} className="whitespace-nowrap">
      {relativeTime(when, now)}
    </time>
  );
}
