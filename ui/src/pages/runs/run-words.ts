/** How the run list names its columns and writes their values. */
import type { RunRow } from "@/api/types";
import { countText, durationText, isNumber, metricText, moneyText, numberOf, settingText } from "@/text/numbers";

/** A colour means a group, in the order of choosing; neighbours differ in hue and in lightness. */
const GROUP_COLOURS = ["var(--color-violet-soft)", "var(--color-teal-soft)", "var(--color-warning)", "var(--color-primary-soft)", "var(--color-success-soft)", "var(--color-pink-soft)", "var(--color-danger-soft)", "var(--color-grey-soft)"] as const;

export const groupColour = (index: number): string => GROUP_COLOURS[index % GROUP_COLOURS.length] ?? GROUP_COLOURS[0];

const TITLES: Record<string, string> = {
  learning_rate: "lr",
  "lora.rank": "Rank",
  "eval/loss.min": "Best eval loss",
  "eval/loss": "Eval loss",
  "train/loss": "Train loss",
  "train/tokens_per_second.mean": "tok/s",
  "train/tokens_per_second": "tok/s now",
};

const PART_WORDS: Record<string, string> = { min: "lowest", max: "highest", mean: "mean", last: "last" };
const PART = /^(.*)\.(min|max|mean|last)$/;

export type ColumnKind = "run" | "config" | "metric";

/** Facts of every run, which have no config and no metric behind them. */
export const RUN_COLUMNS = ["time", "cost", "step", "created", "started", "ended", "attempt", "project", "kind", "seed", "notes", "id"] as const;

export function kindOf(column: string, metrics: ReadonlySet<string>): ColumnKind {
  if ((RUN_COLUMNS as readonly string[]).includes(column)) return "run";
  return metrics.has(column) || metrics.has(PART.exec(column)?.[1] ?? "") ? "metric" : "config";
}

export function titleOf(column: string, kind: ColumnKind): string {
  const known = TITLES[column];
  if (known) return known;
  if (kind === "run") return column[0]?.toUpperCase() + column.slice(1);
  const [, series, part] = PART.exec(column) ?? [];
  if (kind === "metric") return series && part ? `${series} ${PART_WORDS[part]}` : column;
  return (column.split(".").at(-1) ?? column).replaceAll("_", " ");
}

const dateText = (seconds: number) => new Date(seconds * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

const DATES = new Set(["created", "started", "ended"]);

/** Small and large numbers as people write them: 2e-4, 16, 0.03. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return Number.isInteger(value) ? (Math.abs(value) >= 10_000 ? countText(value) : String(value)) : settingText(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function cellText(column: string, value: unknown, kind: ColumnKind): string {
  if (value === null || value === undefined) return "–";
  if (!isNumber(value)) return valueText(value);
  const number = numberOf(value);
  if (column === "time") return durationText(number);
  if (column === "cost") return moneyText(number);
  if (DATES.has(column)) return dateText(number);
  if (kind === "metric") return Math.abs(number) >= 1000 ? countText(number) : metricText(number);
  return valueText(value);
}

/** A standard deviation: two digits are all that it is good for. */
export const spreadText = (value: number) => (Math.abs(value) >= 100 ? countText(value) : String(Number(value.toPrecision(2))));

/** Names of rows as short as they can be told apart: without the words with which all begin, but for the last of them. */
export function shortNames(rows: readonly Pick<RunRow, "name">[]): string[] {
  const words = rows.map(({ name }) => name.split(" "));
  const first = words[0] ?? [];
  let common = 0;
  while (rows.length > 1 && common < first.length - 1 && words.every((each) => each.length > common + 1 && each[common] === first[common])) common += 1;
  const names = words.map((each) => each.slice(Math.max(0, common - 1)).join(" "));
  return names.map((name, index) => (names.indexOf(name) !== names.lastIndexOf(name) ? `${name} (${index + 1})` : name));
}

/** Names with at most so many characters, cut where it leaves what tells each from the others. */
export function cutNames(names: readonly string[], room: number): string[] {
  return names.map((name, index) => {
    if (name.length <= room) return name;
    const unlike = Math.max(0, ...names.map((other, column) => (column === index ? 0 : commonStart(name, other))));
    if (unlike < room - 1) return `${name.slice(0, room - 1)}…`;
    const start = `${name.slice(0, Math.floor(room / 3) - 1)}…`;
    const rest = name.slice(unlike - 2);
    const left = room - start.length;
    return start + (rest.length <= left ? name.slice(-left) : `${rest.slice(0, left - 1)}…`);
  });
}

function commonStart(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length += 1;
  return length;
}

/** Runs that differ in nothing else are one experiment. */
export const isSeed = (path: string) => /(^|\.)(data_|random_)?seed$/.test(path);

/** What a row is called where there is room for a few words only. */
export const seedsText = (row: RunRow) => (row.members.length > 0 ? `${row.members.length} seeds` : "");

const SOURCES: Record<string, string> = { local: "This server", runpod: "RunPod", modal: "Modal", lambda: "Lambda", skypilot: "SkyPilot", paperspace: "Paperspace", replicate: "Replicate", colab: "Colab", ray: "Ray" };

export const sourceText = (source: string) => SOURCES[source] ?? (source || "This machine");

/** A run that was sent from elsewhere, and has not been heard from for this long, is shown with the time. */
const QUIET_SECONDS = 180;

export const isQuiet = (row: Pick<RunRow, "kind" | "status" | "seen">, now = Date.now() / 1000) => row.kind === "run" && row.status === "running" && row.seen !== null && now - row.seen > QUIET_SECONDS;

type Token = { text: string; kind: "field" | "word" | "value" | "mark" | "space" };

const TOKEN = /(\s+)|("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)|(!=|<=|>=|!~|==|[(),=<>~])|([^\s(),=<>~!"']+|!)/g;

/** The parts of a filter, for their colours only: the server reads it. */
export function filterTokens(text: string): Token[] {
  let before: string = "";
  return [...text.matchAll(TOKEN)].map(([whole, space, quoted, mark]): Token => {
    if (space) return { text: whole, kind: "space" };
    const kind = quoted ? "value" : mark ? "mark" : /^(and|or|not|in)$/i.test(whole) ? "word" : /^([=<>~!]|\(|,)/.test(before) && before !== "" && !/^\($/.test(before) ? "value" : "field";
    before = kind === "word" ? "" : whole;
    return { text: whole, kind };
  });
}
