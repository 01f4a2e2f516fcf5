/** What ran: commit, command line, machine, datasets; configs, changes and packages collapsed. */
import { isEmpty, whatRanFacts, whatRanTexts } from "@/text/what-ran";
import type { CardData } from "./card-data";
import { element, empty, facts, section } from "./dom";

export class WhatRanSection {
  readonly root: HTMLElement;
  #body: HTMLElement;
  #written = "";

  constructor() {
    const { root, body } = section("what-ran", "What ran");
    this.root = root;
    this.#body = body;
  }

  show({ what_ran: ran }: CardData) {
    const written = JSON.stringify(ran ?? null);
    if (written === this.#written) return;
    this.#written = written;
    if (!ran || isEmpty(ran)) {
      this.#body.replaceChildren(empty("The run did not record what ran."));
      return;
    }
    const texts = whatRanTexts(ran).map(([title, text]) => element("details", {}, element("summary", {}, title), element("pre", { tabindex: "0", "aria-label": title }, text)));
    this.#body.replaceChildren(facts(whatRanFacts(ran)), ...texts);
  }
}
