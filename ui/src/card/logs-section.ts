/** Section 5: the last lines, searchable; errors stand out and tracebacks are collapsed. */
import { groupLines, type LogPiece } from "@/text/log-groups";
import { countText, counted } from "@/text/numbers";
import type { CardData, LogLine } from "./card-data";
import { element, empty, section } from "./dom";
import { clockText } from "@/text/run-words";

const BOTTOM = 24;

type LogEntry = { piece: LogPiece; from: LogLine; text: string };

export class LogsSection {
  readonly root: HTMLElement;
  #list = element("div", { class: "log", tabindex: "0", role: "log", "aria-label": "Log lines" });
  #search = element("input", { type: "search", placeholder: "Search the log", "aria-label": "Search the log" });
  #onlyErrors = element("input", { type: "checkbox", id: "only-errors" });
  #which = element("select", { "aria-label": "Which lines" }, element("option", { value: "log" }, "Log"), element("option", { value: "output" }, "Output of the process"));
  #summary = element("p", { class: "dim", "aria-live": "polite" });
  #chosen = false;
  #pieces: LogEntry[] = [];
  #data: CardData["logs"] = { lines: [], total: 0, errors: 0 };
  #several = false;
  #last = "";

  constructor() {
    const tools = element("div", { class: "tools" }, this.#which, this.#search, element("label", { for: "only-errors" }, this.#onlyErrors, " Errors only"));
    const { root, body } = section("logs", "Logs", tools);
    this.root = root;
    body.append(this.#summary, this.#list);
    this.#which.hidden = true;
    this.#which.addEventListener("change", () => {
      this.#chosen = true;
      this.#take();
    });
    this.#search.addEventListener("input", () => this.#write());
    this.#onlyErrors.addEventListener("change", () => this.#write());
  }

  show({ logs, ranks }: CardData) {
    const output = logs.output ?? [];
    const last = `${logs.total} ${JSON.stringify(logs.lines.at(-1) ?? null)} ${output.length} ${output.at(-1) ?? ""}`;
    if (last === this.#last) return;
    this.#last = last;
    this.#data = logs;
    this.#several = ranks.length > 1;
    this.#which.hidden = output.length === 0;
    // A script that reports no lines has its output kept by whoever started it.
    if (!this.#chosen) this.#which.value = logs.lines.length === 0 && output.length > 0 ? "output" : "log";
    this.#take();
  }

  get #showsOutput() {
    return !this.#which.hidden && this.#which.value === "output";
  }

  #take() {
    const output = this.#data.output ?? [];
    this.#pieces = this.#showsOutput ? piecesOf(output.map((line) => ({ t: null, rank: 0, attempt: 1, level: "info", line })), false) : piecesOf(this.#data.lines, this.#several);
    this.#write();
  }

  #write() {
    const wanted = this.#search.value.trim().toLowerCase();
    const matches = this.#pieces.filter(
      ({ piece, from, text }) => (!this.#onlyErrors.checked || isWrong(piece, from)) && (wanted === "" || text.toLowerCase().includes(wanted)),
    );
    const list = this.#list;
    const follows = list.scrollHeight - list.scrollTop - list.clientHeight < BOTTOM;
    list.replaceChildren(...matches.map((one) => lineOf(one, wanted)));
    if (matches.length === 0) list.append(empty(this.#pieces.length === 0 ? "Nothing has been logged yet." : "No line matches."));
    if (follows) list.scrollTop = list.scrollHeight;
    this.#summary.textContent = this.#summaryText(wanted, matches.length);
  }

  #summaryText(wanted: string, matches: number): string {
    const { lines, total, errors, output } = this.#data;
    if (this.#showsOutput) return wanted === "" ? `The last ${counted(output?.length ?? 0, "line")} that the process printed.` : `${counted(matches, "match", "matches")}.`;
    const kept = total > lines.length ? `The last ${countText(lines.length)} of ${counted(total, "line")}` : counted(total, "line");
    const wrong = errors > 0 ? `, ${counted(errors, "error")}` : "";
    return wanted === "" ? `${kept}${wrong}.` : `${counted(matches, "match", "matches")} in ${kept.charAt(0).toLowerCase()}${kept.slice(1)}.`;
  }
}

const isWrong = (piece: LogPiece, from: LogLine) => piece.kind === "traceback" || piece.wrong || from.level === "error";

/** One logged line may hold a whole traceback; lines of one rank that follow each other may hold its parts. */
export function piecesOf(lines: readonly LogLine[], several: boolean): LogEntry[] {
  const entries: LogEntry[] = [];
  let index = 0;
  while (index < lines.length) {
    const first = lines[index];
    if (!first) break;
    const run: { text: string; from: LogLine }[] = [];
    for (; index < lines.length; index += 1) {
      const from = lines[index];
      if (!from || from.rank !== first.rank) break;
      for (const text of from.line.replace(/\n$/, "").split("\n")) run.push({ text, from });
    }
    let used = 0;
    for (const piece of groupLines(run.map((one) => one.text))) {
      const from = run[used]?.from ?? first;
      used += piece.kind === "line" ? 1 : piece.lines.length;
      const text = piece.kind === "line" ? piece.text : piece.lines.join("\n");
      entries.push({ piece, from: several ? from : { ...from, rank: 0 }, text });
    }
  }
  return entries;
}

function lineOf({ piece, from }: LogEntry, wanted: string): HTMLElement {
  const time = from.t !== null && element("time", {}, clockText(from.t));
  const rank = from.rank > 0 && element("span", { class: "dim" }, `rank ${from.rank} `);
  if (piece.kind === "traceback") {
    const details = element("details", { class: "line wrong" }, element("summary", {}, time, rank, marked(piece.title, wanted)), element("pre", {}, marked(piece.lines.join("\n"), wanted)));
    // What was searched for may lie inside.
    details.open = wanted !== "" && !piece.title.toLowerCase().includes(wanted);
    return details;
  }
  const level = isWrong(piece, from) ? "wrong" : from.level === "warning" ? "warned" : "";
  return element("div", { class: `line ${level}` }, time, rank, marked(piece.text, wanted));
}

/** The text with every match marked. */
function marked(text: string, wanted: string): Node {
  const parts = document.createDocumentFragment();
  if (wanted === "") {
    parts.append(text);
    return parts;
  }
  const lower = text.toLowerCase();
  // Some characters become several in lower case; then positions would not fit.
  if (lower.length !== text.length) {
    parts.append(text);
    return parts;
  }
  let at = 0;
  for (let next = lower.indexOf(wanted); next !== -1; next = lower.indexOf(wanted, at)) {
    parts.append(text.slice(at, next), element("mark", {}, text.slice(next, next + wanted.length)));
    at = next + wanted.length;
  }
  parts.append(text.slice(at));
  return parts;
}
