/** Section 1: how the run is doing, in figures and in findings. */
import { factText } from "@/text/machines";
import { counted, countText, durationText, metricText } from "@/text/numbers";
import { type CardData, type Improvement, messageOf, type RunStatus } from "./card-data";
import { element, facts, section, time } from "./dom";
import { causeText, epochText, phaseText, sentence, toneOf, withLocalTimes } from "@/text/run-words";

export class StatusSection {
  #bar = element("div", { class: "bar" });
  #figures = element("div");
  #improvement = element("p");
  #findings = element("div", { class: "findings", role: "status" });
  #facts = element("div");
  readonly root: HTMLElement;

  constructor() {
    const { root, body } = section("status", "Status");
    this.root = root;
    body.append(this.#bar, this.#figures, this.#improvement, this.#findings, this.#facts);
  }

  show(data: CardData) {
    const { status } = data;
    this.#writeBar(status);
    this.#figures.replaceChildren(facts(figures(status)));
    const answer = data.improvement;
    this.#improvement.hidden = !answer;
    if (answer) this.#improvement.replaceChildren(element("strong", {}, "Did it improve?"), " ", element("span", { class: `badge ${TONES[answer.verdict]}` }, answer.text), ` ${answeredText(answer)}`);
    this.#findings.replaceChildren(...notices(data));
    const known = Object.entries(status.facts).filter(([name]) => name !== "global_batch_size");
    this.#facts.replaceChildren();
    if (known.length > 0) {
      this.#facts.append(
        element("details", {}, element("summary", {}, "About this run"), facts(known.map(([name, value]) => [sentence(name), factText(value)] as const))),
      );
    }
  }

  #writeBar({ step, total_steps: total }: RunStatus) {
    this.#bar.hidden = !total;
    if (!total) return;
    const part = Math.min(1, (step ?? 0) / total);
    const filled = element("div", { class: "filled" });
    filled.style.width = `${(part * 100).toFixed(1)}%`;
    const described = { role: "progressbar", "aria-label": "Progress", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": String(Math.floor(part * 100)) };
    for (const [name, value] of Object.entries(described)) this.#bar.setAttribute(name, value);
    this.#bar.replaceChildren(filled);
  }
}

const TONES = { yes: "good", no: "bad", unclear: "" } as const;

function answeredText({ first, compared, not_finite_since: notFiniteSince, interval }: Improvement): string {
  const from = `${metricText(first.loss)} (${first.step === 0 ? "base model" : `step ${countText(first.step)}`})`;
  const to = compared.step === first.step ? "" : ` → ${metricText(compared.loss)} (step ${countText(compared.step)}${typeof notFiniteSince === "number" ? ", the last finite one" : ""})`;
  return `Eval loss ${from}${to}${interval ? `; ${interval}` : ""}.`;
}

const of = (value: number | null, total: number | null, text: (value: number) => string) =>
  value === null ? "–" : element("span", {}, text(value), total === null ? null : element("small", {}, ` / ${text(total)}`));

function figures(status: RunStatus): [string, Node | string][] {
  const running = status.status === "running";
  return [
    ["Phase", running ? (status.phase ? phaseText(status.phase) : "starting") : sentence(status.status)],
    ["Step", of(status.step, status.total_steps, countText)],
    ["Epoch", of(status.epoch, status.epochs, epochText)],
    ["Elapsed", status.elapsed_seconds === null ? "–" : durationText(status.elapsed_seconds)],
    ["Time left", running && status.eta_seconds !== null ? durationText(status.eta_seconds) : "–"],
    ["Global batch size", status.global_batch_size === null ? "–" : countText(status.global_batch_size)],
    ["World size", status.world_size === null ? "–" : countText(status.world_size)],
    ["Restarts", countText(status.restart_count)],
  ];
}

const notice = (tone: string, title: string, text: string, link?: HTMLElement) =>
  element("p", { class: `notice ${tone}` }, element("strong", {}, title), ` ${text} `, link);

function notices(data: CardData): HTMLElement[] {
  const items: HTMLElement[] = [];
  const { failure, status } = data;
  if (failure) {
    const what = [failure.type, messageOf(failure)].filter(Boolean).join(": ") || `The run ended with status ${failure.status}.`;
    const cause = causeText(failure);
    items.push(notice("error", `${sentence(failure.status)}.`, cause ? `${sentence(cause)}. ${short(what)}` : short(what), element("a", { href: "#failure" }, "Failure summary")));
  }
  for (const finding of data.findings) {
    const box = notice(finding.severity === "critical" ? "error" : finding.severity, `${finding.title ?? sentence(finding.kind)}.`, `${withLocalTimes(finding.sentence, finding.since)}${finding.next_step ? ` ${finding.next_step}` : ""}`);
    if (finding.since !== null) box.append(" Since ", time(finding.since), ".");
    items.push(box);
  }
  const restarted = data.discontinuities.at(-1);
  if (restarted) {
    const from = restarted.step === null ? "from the beginning" : `from step ${countText(restarted.step)}`;
    const repeated = restarted.repeated_steps ? `; ${counted(restarted.repeated_steps, "step")} repeated` : "";
    const why = restarted.reason ? ` End of the previous attempt: ${short(restarted.reason)}.` : "";
    items.push(notice("info", status.restart_count > 1 ? `Restarted ${countText(status.restart_count)} times.` : "Restarted once.", `Attempt ${restarted.attempt} started ${from}${repeated}.${why}`));
  }
  const dropped = Object.entries(status.dropped).map(([kind, count]) => counted(count, `${kind} event`));
  if (dropped.length > 0) items.push(notice("warning", "Some events were lost.", `Dropped: ${dropped.join(", ")}.`));
  for (const note of data.notes ?? []) items.push(notice("info", "Note.", note));
  return items;
}

const short = (text: string) => (text.length > 300 ? `${text.slice(0, 300)}…` : text);

/** The state as a coloured word for the heading of the card. */
export const badge = (status: string) => element("span", { class: `badge ${toneOf(status)}` }, sentence(status));
