/** Samples: the answers to the same prompts over steps, each prompt with a slider of its own. */
import { countText } from "@/text/numbers";
import type { CardData, PromptSamples } from "./card-data";
import { element, section } from "./dom";

const stepText = (step: number) => (step === 0 ? "Before training" : `Step ${countText(step)}`);

export class SamplesSection {
  readonly root: HTMLElement;
  #body: HTMLElement;
  #written = "";
  /** By prompt: the step that somebody chose; a prompt without one shows its newest answer. */
  #chosen = new Map<string, number>();

  constructor() {
    const { root, body } = section("samples", "Samples");
    this.root = root;
    this.#body = body;
  }

  show({ samples = [] }: CardData) {
    const written = JSON.stringify(samples);
    if (written === this.#written) return;
    this.#written = written;
    // Most runs have none, and a section that says so would only be in the way.
    this.root.hidden = samples.length === 0;
    this.#body.replaceChildren(...samples.map((sample) => this.#prompt(sample)));
  }

  #prompt({ prompt, answers }: PromptSamples): HTMLElement {
    const [first] = answers;
    const slider = element("input", { type: "range", min: "0", max: String(answers.length - 1), "aria-label": `Step of the answer to: ${prompt}` });
    const title = element("span", { class: "dim" });
    const text = element("pre", { class: "sample-text", tabindex: "0", "aria-label": "Answer at the chosen step" });
    const draw = () => {
      const answer = answers[Number(slider.value)];
      title.textContent = answer ? stepText(answer.step) : "";
      text.textContent = answer?.text.trim() || "(empty answer)";
    };
    const chosen = answers.findIndex(({ step }) => step === this.#chosen.get(prompt));
    slider.value = String(chosen === -1 ? answers.length - 1 : chosen);
    slider.addEventListener("input", () => {
      const answer = answers[Number(slider.value)];
      if (answer) this.#chosen.set(prompt, answer.step);
      draw();
    });
    draw();
    const base = first && answers.length > 1 ? element("div", {}, element("span", { class: "dim" }, stepText(first.step)), element("pre", { class: "sample-text", tabindex: "0", "aria-label": "First answer" }, first.text.trim() || "(empty answer)")) : null;
    return element("article", { class: "sample" }, element("p", { class: "sample-prompt" }, prompt), answers.length > 1 && slider, element("div", { class: "sample-answers" }, base, element("div", {}, title, text)));
  }
}
