/** How times, values and states of a run are written, on the card and on the job page. */
import { countText, numberOf } from "./numbers";
import type { Value } from "@/card/card-data";

const TIMES = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" } as const;

export const timeText = (seconds: number | null) => (seconds === null ? "–" : new Date(seconds * 1000).toLocaleString("en-GB", TIMES));

/** The same moment for those who compare it with logs of other machines. */
export const utcText = (seconds: number) => `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** A sentence of the run with its times, which are in UTC, in the reader's time zone. `near`: a moment of the same day. */
export const withLocalTimes = (text: string, near: number | null) =>
  text.replace(/\b(\d\d):(\d\d):(\d\d) UTC\b/g, (_all, hours: string, minutes: string, seconds: string) => {
    const moment = new Date(near === null ? Date.now() : near * 1000);
    moment.setUTCHours(Number(hours), Number(minutes), Number(seconds));
    return moment.toLocaleTimeString("en-GB");
  });

export const clockText = (seconds: number | null) => (seconds === null ? "" : new Date(seconds * 1000).toLocaleTimeString("en-GB"));

/** A measured value; a dash where the run reported none. */
export const valueText = (value: Value | undefined, text: (value: number) => string) => (value === null || value === undefined ? "–" : text(numberOf(value)));

/** "1.87", "3", "0.002", "1,234": a few steps of large data are a small part of an epoch, not 0. */
export const epochText = (value: number) => {
  if (value >= 100) return countText(Math.floor(value));
  return String(value > 0 && value < 0.01 ? Number(value.toPrecision(1)) : Math.round(value * 100) / 100);
};

const PHASES: Record<string, string> = {
  train: "Training",
  eval: "Evaluating",
  save: "Saving",
  load: "Loading",
  idle: "Idle",
};

export const sentence = (text: string) => text.charAt(0).toUpperCase() + text.slice(1).replaceAll("_", " ");

export const phaseText = (phase: string) => PHASES[phase] ?? sentence(phase);

const BAD = new Set(["failed", "killed", "preempted", "interrupted", "silent", "dead"]);

/** Whether a state is good news, bad news, or neither. */
export function toneOf(status: string): "good" | "bad" | "live" | "still" {
  if (status === "running") return "live";
  if (status === "completed") return "good";
  return BAD.has(status) ? "bad" : "still";
}

/** The likely cause in words. A snapshot of an older version has only its code. */
export const causeText = (failure: { cause: string | null; cause_title?: string | null }) => failure.cause_title ?? failure.cause?.replaceAll("_", " ") ?? null;
