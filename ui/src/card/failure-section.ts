/** Section 6: what a run that failed left behind. */
import { bytesText, countText, metricText } from "@/text/numbers";
import { type Attempt, type CardData, type Failure, messageOf } from "./card-data";
import { element, empty, facts, section, time } from "./dom";
import { causeText, sentence, timeText, valueText } from "@/text/run-words";

export class FailureSection {
  readonly root: HTMLElement;
  #body: HTMLElement;
  #written = "";

  constructor() {
    const { root, body } = section("failure", "Failure summary");
    this.root = root;
    this.#body = body;
  }

  show({ failure, status, attempts }: CardData) {
    const earlier = (attempts ?? []).filter((one) => one.error && one.attempt !== failure?.attempt);
    const written = JSON.stringify([failure, status.status, earlier]);
    if (written === this.#written) return;
    this.#written = written;
    this.root.classList.toggle("failed", failure !== null);
    const none = earlier.length > 0 ? "This attempt has not failed." : status.status === "running" ? "No failure so far." : "The run did not fail.";
    this.#body.replaceChildren(...(failure ? parts(failure) : [empty(none)]), ...earlier.toReversed().map(earlierFailure));
  }
}

function parts(failure: Failure): HTMLElement[] {
  const cause = causeText(failure);
  const where = [
    ["Status", sentence(failure.status)],
    ["Time", time(failure.t)],
    ["Step", failure.step === null ? "–" : countText(failure.step)],
    ["Rank", failure.rank === null ? "–" : countText(failure.rank)],
    ...(failure.lost_ranks?.length ? [["Lost ranks", failure.lost_ranks.map(countText).join(", ")] as const] : []),
    ["Attempt", failure.attempt === null ? "–" : countText(failure.attempt)],
  ] as const;
  const sections = [
    cause || failure.advice
      ? element("p", { class: "notice error" }, element("strong", {}, `Likely cause: ${cause ?? "unknown"}. `), failure.advice ?? "")
      : null,
    element("h3", { class: "part" }, failure.type ?? sentence(failure.status)),
    messageOf(failure) ? element("p", { class: "message" }, messageOf(failure)) : null,
    facts(where),
    failure.traceback
      ? element("details", { open: true }, element("summary", {}, "Stack trace"), element("pre", { tabindex: "0", "aria-label": "Stack trace" }, failure.traceback.trimEnd()))
      : null,
    element("h3", { class: "part" }, "Last metrics"),
    // A snapshot of an older version has null for NaN.
    listOf(Object.entries(failure.last_metrics).map(([name, { step, value }]) => [name, `${valueText(value ?? "NaN", metricText)}${step === null ? "" : ` at step ${countText(step)}`}`])),
    element("h3", { class: "part" }, "Last system metrics"),
    listOf(Object.entries(failure.last_system).map(([name, value]) => [name, valueText(value, (known) => systemText(name, known))])),
  ];
  return sections.filter((part) => part !== null);
}

function earlierFailure({ attempt, error, ended_at }: Attempt): HTMLElement {
  const title = `Attempt ${countText(attempt)}: ${error?.type ?? "Error"}${ended_at === null ? "" : `, ${timeText(ended_at)}`}`;
  return element("details", {}, element("summary", {}, title), error?.message ? element("p", { class: "message" }, error.message) : null, error?.traceback ? element("pre", { tabindex: "0", "aria-label": `Stack trace of attempt ${attempt}` }, error.traceback.trimEnd()) : null);
}

const listOf = (pairs: [string, string][]) => (pairs.length === 0 ? empty("No values were reported.") : facts(pairs));

const BYTES = /(memory_used|memory_total|ram|used|total|free)$/;
const RATES = /(read|written|received|sent)$/;

function systemText(name: string, value: number): string {
  if (RATES.test(name)) return `${bytesText(value)}/s`;
  if (BYTES.test(name)) return bytesText(value);
  if (/(utilization|fan)$/.test(name)) return `${Math.round(value)} %`;
  if (name.endsWith("temperature")) return `${Math.round(value)} °C`;
  return name.endsWith("power") ? `${Math.round(value)} W` : metricText(value);
}
