/** The parts that sections of the card are made of. */
import { type Child, element } from "@/charts/element";
import { timeText, utcText } from "@/text/run-words";

export { element };

/** A moment in the reader's time zone; UTC, which logs and other machines use, is in its tooltip. */
export function time(seconds: number | null): Node | string {
  if (seconds === null) return "–";
  return element("time", { datetime: new Date(seconds * 1000).toISOString(), title: utcText(seconds) }, timeText(seconds));
}

/** A section of the card with its heading; `aside` stands at the right of it. */
export function section(id: string, title: string, aside?: Child): { root: HTMLElement; body: HTMLElement } {
  const body = element("div", { class: "body" });
  const heading = element("h2", { id: `${id}-title` }, title);
  const root = element("section", { id, "aria-labelledby": `${id}-title` }, element("div", { class: "heading" }, heading, aside), body);
  return { root, body };
}

export const empty = (sentence: string) => element("p", { class: "empty" }, sentence);

/** A table that a phone shows as cards: every cell repeats its column's name. */
export function table(caption: string, columns: readonly string[], rows: readonly (readonly (Node | string)[])[]): HTMLElement {
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
  const body = rows.map((row) =>
    element("tr", {}, ...row.map((cell, index) => element("td", { "data-label": columns[index] ?? "" }, cell))),
  );
  return element(
    "table",
    {},
    element("caption", { class: "visually-hidden" }, caption),
    element("thead", {}, head),
    element("tbody", {}, ...body),
  );
}

/** Terms and what they are, in columns. */
export function facts(pairs: readonly (readonly [string, Node | string])[]): HTMLElement {
  return element("dl", { class: "facts" }, ...pairs.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))));
}
