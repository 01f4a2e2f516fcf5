/** On a live page: pause, resume, save now and settings. Whatever changes the run is sent with the token. */
import type { CardData } from "./card-data";
import { element, section } from "./dom";
import { sentence } from "@/text/run-words";

const SETTINGS = ["learning_rate", "weight_decay", "clip_norm", "eval_every_steps", "save_every_steps"] as const;
const STORAGE_KEY = "bloom token";

type Command = { want?: "run" | "pause"; save?: true; set?: Record<string, number> };

export class ControlSection {
  readonly root: HTMLElement;
  #pause = element("button", { type: "button" }, "Pause");
  #resume = element("button", { type: "button" }, "Resume");
  #save = element("button", { type: "button" }, "Save checkpoint");
  #token = element("input", { type: "password", id: "token", autocomplete: "off" });
  #status = element("p", { class: "dim", role: "status" });
  #disconnected = element("p", { class: "notice warning", role: "alert" }, "No connection to the server. The server may have stopped when the run ended, or the token below may be missing or wrong. This page reconnects automatically.");
  #inputs = SETTINGS.map((name) => element("input", { type: "text", inputmode: "decimal", id: `set-${name}`, name, placeholder: "unchanged", autocomplete: "off" }));
  #pendingVersion = 0;
  #ignoring = element("p", { class: "dim" }, "This script does not look for commands, so it cannot be paused or changed from here. The adapters, and batches from reporter.track(), take commands.");
  #commands: HTMLElement[] = [];

  constructor() {
    const { root, body } = section("control", "Control");
    this.root = root;
    this.#token.value = takeToken();
    this.#disconnected.hidden = true;
    this.#pause.addEventListener("click", () => void this.#send({ want: "pause" }, "Pause requested. The run saves a checkpoint and stops after this step."));
    this.#resume.addEventListener("click", () => void this.#send({ want: "run" }, "Resume requested."));
    this.#save.addEventListener("click", () => void this.#send({ save: true }, "Checkpoint requested. The run saves it after this step."));
    const form = element(
      "form",
      { class: "settings" },
      ...SETTINGS.map((name, index) => element("label", { for: `set-${name}` }, sentence(name), this.#inputs[index])),
      element("button", { type: "submit" }, "Apply settings"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#apply();
    });
    this.#ignoring.hidden = true;
    const tokenLabel = element("label", { for: "token" }, "Token (printed when the server starts) ", this.#token);
    this.#commands = [this.#pause, this.#resume, this.#save, form];
    body.append(this.#disconnected, this.#ignoring, element("div", { class: "tools" }, this.#pause, this.#resume, this.#save, tokenLabel), form, this.#status);
  }

  token = () => this.#token.value.trim();

  onConnectionChange = (isThere: boolean) => {
    this.#disconnected.hidden = isThere;
  };

  show({ control, status }: CardData) {
    if (!control) return;
    // Before its first step a loop may still be on its way to look.
    const ignoresControl = control.listens === false && status.phase !== null && status.phase !== "load";
    this.#ignoring.hidden = !ignoresControl;
    for (const command of this.#commands) command.hidden = ignoresControl;
    const goesOn = control.is_held || status.status === "running" || status.status === "waiting";
    this.#pause.disabled = !goesOn || control.want !== "run";
    this.#resume.disabled = control.want === "run" && (goesOn || status.status === "completed");
    this.#save.disabled = !goesOn;
    SETTINGS.forEach((name, index) => {
      const [input, value] = [this.#inputs[index], control.set[name]];
      if (input) input.placeholder = value === undefined || value === null ? "unchanged" : String(value);
    });
    if (control.problem) this.#status.textContent = sentence(control.problem);
    const isAnswer = this.#pendingVersion > 0 && control.applied !== null && control.applied >= this.#pendingVersion;
    if (!isAnswer) return;
    this.#pendingVersion = 0;
    const refused = Object.entries(control.refused).map(([name, why]) => `${sentence(name)} was refused: ${why}.`);
    this.#status.textContent = refused.length > 0 ? refused.join(" ") : "Done. The run has applied the change.";
  }

  #apply() {
    const filled = this.#inputs.filter((input) => input.value.trim() !== "");
    const wrong = filled.find((input) => !Number.isFinite(Number(input.value)));
    if (wrong) {
      this.#status.textContent = `${sentence(wrong.name)} is not a number: ${wrong.value}`;
      wrong.focus();
    } else if (filled.length > 0) {
      void this.#send({ set: Object.fromEntries(filled.map((input) => [input.name, Number(input.value)])) }, "New settings sent to the run.").then((done) => {
        if (done) for (const input of filled) input.value = "";
      });
    }
  }

  async #send(command: Command, confirmation: string): Promise<boolean> {
    try {
      const answer = await fetch("/api/control", {
        method: "POST",
        headers: { "Content-Type": "application/json", Authorization: `Bearer ${this.token()}` },
        body: JSON.stringify(command),
      });
      const content = (await answer.json()) as { detail?: string; version?: number };
      this.#status.textContent = answer.ok ? confirmation : (content.detail ?? "The server rejected the request.");
      if (answer.ok) {
        keep(this.token());
        this.#pendingVersion = content.version ?? 0;
      } else if (answer.status === 401) this.#token.focus();
      return answer.ok;
    } catch {
      this.#status.textContent = "The server cannot be reached. Nothing was changed.";
      return false;
    }
  }
}

/** From the address, where it must not stay, or from before this page was loaded anew. */
function takeToken(): string {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    history.replaceState(null, "", location.pathname);
    keep(given);
  }
  return given ?? sessionStorage.getItem(STORAGE_KEY) ?? "";
}

const keep = (token: string) => sessionStorage.setItem(STORAGE_KEY, token);
