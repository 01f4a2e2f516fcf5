import { durationText } from "./duration";

const HOUR = 3600;

/** Long times without their small units: nobody plans a week to the minute. */
export function hoursText(hours: number): string {
  const seconds = hours * HOUR;
  if (seconds >= 48 * HOUR) return durationText(Math.round(hours) * HOUR);
  return durationText(seconds < 60 ? seconds : Math.round(seconds / 60) * 60);
}
