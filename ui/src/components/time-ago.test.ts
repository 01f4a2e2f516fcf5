import { describe, expect, it } from "vitest";
import { relativeTime } from "./time-ago";

const now = new Date("2026-11-15T12:00:00Z");
const MINUTE = 60;
const HOUR = 3600;
const DAY = 24 * HOUR;

describe("relative time", () => {
  it.each([
    [-5, "just now"],
    [20, "just now"],
    [-MINUTE, "1 minute ago"],
    [-(2 * HOUR + 59 * MINUTE), "2 hours ago"],
    [-DAY, "yesterday"],
    [-40 * DAY, "last month"],
    [-800 * DAY, "2 years ago"],
    [3 * HOUR, "in 3 hours"],
  ])("says %i seconds from now as %s", (seconds, words) => {
    expect(relativeTime(new Date(now.getTime() + seconds * 1000), now)).toBe(words);
  });

  it("does not lose a day the moment something of 14 days was made", () => {
    expect(relativeTime(new Date(now.getTime() + (14 * DAY - 1) * 1000), now)).toBe("in 14 days");
  });
});
