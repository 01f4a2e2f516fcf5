/**
 * The draft of a script job, until it is submitted.
 * A draft lives as long as its tab: connecting a provider on another page, or a reload, loses nothing. It never leaves
 * the browser, and is deleted at sign-out.
 */
import { useEffect, useState } from "react";
import { isSignedIn } from "@/api/auth";
import { NewMlJob, Overrides as OverrideFields, ScriptIn } from "@/api/request-fields";
import type { NewScriptJob, ScriptTemplate } from "@/api/scripts";
import type { Job } from "@/api/types";
import { numberMistake, parseNumber } from "@/forms/rules";
import type { FieldSchema } from "@/forms/schema-fields";
import { CHEAPEST_NEXT, type Failover, failoverBody } from "@/pages/offers/failover-fields";
import { LOCAL, type OfferChoice, type OfferPreference, PREFER_LOCAL } from "@/pages/offers/offer-selection";
import { useCurrentUser } from "@/shell/session";
import { entryOf, fileBodies, fileFrom, isText, merged, type ScriptFile } from "./script-files";

/** Cuts a command line into its words as a shell would, as far as people write them: spaces, quotes, backslashes. */
export function commandWords(text: string): { words: string[]; mistake: string | null } {
  const words: string[] = [];
  let word: string | null = null;
  let quote: string | null = null;
  for (let at = 0; at < text.length; at += 1) {
    const sign = text.charAt(at);
    if (quote !== null) {
      if (sign === quote) quote = null;
      else if (sign === "\\" && quote === '"' && /["\\]/.test(text.charAt(at + 1))) word += text.charAt((at += 1));
      else word += sign;
    } else if (sign === '"' || sign === "'") {
      quote = sign;
      word ??= "";
    } else if (/\s/.test(sign)) {
      if (word !== null) words.push(word);
      word = null;
    } else {
      word = (word ?? "") + (sign === "\\" ? text.charAt((at += 1)) : sign);
    }
  }
  if (word !== null) words.push(word);
  return { words, mistake: quote === null ? null : `A quotation mark is not closed: ${quote}` };
}

const PLAIN = /^[\w@%+=:,./-]+$/;

/** Words as one line that is cut into the same words again. */
export const commandText = (words: readonly string[]) =>
  words.map((word) => (PLAIN.test(word) ? word : `"${word.replaceAll(/["\\]/g, (sign) => `\\${sign}`)}"`)).join(" ");

/** Values that a person knows better than what was read in the script; "" where they do not. */
export type Overrides = { gpus: string; memory: string; hours: string };

export type Draft = {
  files: readonly ScriptFile[];
  entry: string | null;
  /** The file in the editor. */
  active: string | null;
  arguments: string;
  datasets: string;
  /** "" for what the script seems to need. */
  packages: string;
  name: string;
  /** "" leaves it to the server. */
  project: string;
  overrides: Overrides;
  /** Where it should run. */
  offer: OfferPreference;
  budget: string;
  maxHours: string;
  failover: Failover;
  network: boolean;
  confirmed: boolean;
};

export const EMPTY: Draft = {
  files: [],
  entry: null,
  active: null,
  arguments: "",
  datasets: "",
  packages: "",
  name: "",
  project: "",
  overrides: { gpus: "", memory: "", hours: "" },
  offer: { picked: null, preferred: null },
  budget: "",
  maxHours: "",
  failover: CHEAPEST_NEXT,
  network: false,
  confirmed: false,
};

const WRITTEN = "train.py";

export const withWritten = (draft: Draft): Draft => withFiles(draft, [{ path: WRITTEN, text: "" }]);

export function withFiles(draft: Draft, added: readonly ScriptFile[]): Draft {
  const files = merged(draft.files, added);
  const entry = files.some(({ path }) => path === draft.entry) ? draft.entry : entryOf(files);
  const [firstText] = [entry, added.find(isText)?.path].filter((path) => files.some((file) => file.path === path && isText(file)));
  const active = draft.active !== null && files.some(({ path }) => path === draft.active) ? draft.active : (firstText ?? null);
  return { ...draft, files, entry, active };
}

export function withoutFile(draft: Draft, path: string): Draft {
  const files = draft.files.filter((file) => file.path !== path);
  return withFiles({ ...draft, files, active: draft.active === path ? null : draft.active }, []);
}

export const withText = (draft: Draft, path: string, text: string): Draft => ({ ...draft, files: draft.files.map((file) => (file.path === path ? { path, text } : file)) });

/** A template replaces all files and leaves the limits as they are. */
export function fromTemplate(draft: Draft, template: ScriptTemplate): Draft {
  const empty = { ...draft, files: [], entry: null, active: null, overrides: EMPTY.overrides };
  const offer = { picked: null, preferred: { provider: template.provider, gpu: template.gpu } };
  return { ...withFiles(empty, template.files), offer, name: template.title, arguments: commandText(template.arguments), datasets: template.datasets.join(", ") };
}

/** A job that ran, to be edited and run again. */
export function fromJob(draft: Draft, { task, project_id: project, name, target, offer, budget, max_hours: maxHours }: Job, files: readonly ScriptFile[]): Draft {
  const { entry, arguments: line, packages, datasets, network } = task?.kind === "script" ? task : { entry: null, arguments: [], packages: [], datasets: [], network: false };
  return {
    ...withFiles({ ...startedOver(draft), entry }, files),
    project,
    name: name === entry ? "" : name,
    arguments: commandText(line),
    datasets: datasets.join(", "),
    // Here nothing is installed, and an edited script may need others.
    packages: target === LOCAL ? "" : packages.join(", "),
    offer: offer === null ? PREFER_LOCAL : { picked: null, preferred: { provider: offer.provider, gpu: offer.gpu } },
    budget: budget === null ? "" : String(budget),
    maxHours: maxHours === null ? "" : String(maxHours),
    network,
  };
}

export const startedOver = (draft: Draft): Draft => ({ ...EMPTY, project: draft.project, budget: draft.budget, maxHours: draft.maxHours, failover: draft.failover });

const entryText = ({ files, entry }: Pick<Draft, "files" | "entry">): string | null => {
  const file = files.find(({ path }) => path === entry);
  return file && isText(file) ? file.text : null;
};

/** What is read to find out what the script needs; a request of a moment, so it stays below what the server takes. */
const MOST_FILES = ScriptIn.files.maxProperties;
const MOST_CHARACTERS = ScriptIn.script.maxLength / 2;

export function scriptRequest({ files, entry, arguments: line }: Pick<Draft, "files" | "entry" | "arguments">) {
  const script = entryText({ files, entry });
  if (script === null || script.trim() === "") return null;
  const otherFiles: Record<string, string> = {};
  let charactersLeft = MOST_CHARACTERS - script.length;
  for (const file of files) {
    // Only programs and settings say what is needed; data does not.
    if (file.path === entry || !isText(file) || !/\.(py|json|ya?ml|toml)$|(^|\/)requirements[^/]*\.txt$/.test(file.path)) continue;
    if (file.text.length > charactersLeft || Object.keys(otherFiles).length === MOST_FILES) continue;
    charactersLeft -= file.text.length;
    otherFiles[file.path] = file.text;
  }
  return { script, files: otherFiles, arguments: commandWords(line).words };
}

export const OVERRIDE_SCHEMAS = {
  gpus: OverrideFields.gpus,
  memory: OverrideFields.gpu_memory_gb,
  hours: OverrideFields.duration_hours,
} as const satisfies Record<keyof Overrides, FieldSchema>;

export type DraftMistakes = Partial<Record<"files" | "arguments" | "budget" | "maxHours" | keyof Overrides, string>>;

export function mistakesIn(draft: Draft): DraftMistakes {
  const text = entryText(draft);
  const mistakes: Record<keyof DraftMistakes, string | null | undefined> = {
    files: draft.files.length === 0 ? "Choose a template, add a folder or write a script." : text === null || text.trim() === "" ? "Choose an entry script that is not empty." : null,
    arguments: commandWords(draft.arguments).mistake,
    budget: numberMistake(draft.budget, NewMlJob.budget),
    maxHours: numberMistake(draft.maxHours, NewMlJob.max_hours),
    gpus: numberMistake(draft.overrides.gpus, OVERRIDE_SCHEMAS.gpus),
    memory: numberMistake(draft.overrides.memory, OVERRIDE_SCHEMAS.memory),
    hours: numberMistake(draft.overrides.hours, OVERRIDE_SCHEMAS.hours),
  };
  return Object.fromEntries(Object.entries(mistakes).filter(([, mistake]) => mistake)) as DraftMistakes;
}

const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);

/** The request that starts the job. An offer of null is this machine. */
export function jobBody(draft: Draft, offer: OfferChoice | null): NewScriptJob {
  const { gpus, memory, hours } = draft.overrides;
  const values = { gpus: parseNumber(gpus), gpu_memory_gb: parseNumber(memory), duration_hours: parseNumber(hours) };
  const overrides = Object.entries(values).filter((pair): pair is [string, number] => pair[1] !== null);
  return {
    files: fileBodies(draft.files),
    entry: draft.entry ?? WRITTEN,
    arguments: commandWords(draft.arguments).words,
    name: draft.name.trim() || null,
    project_id: draft.project || null,
    provider: offer?.provider ?? "local",
    offer,
    requirements: overrides.length > 0 ? Object.fromEntries(overrides) : null,
    datasets: words(draft.datasets),
    packages: draft.packages.trim() === "" ? null : words(draft.packages),
    budget: parseNumber(draft.budget),
    max_hours: parseNumber(draft.maxHours),
    ...failoverBody(draft.failover),
    network: draft.network,
    confirmed: draft.confirmed,
  };
}

const STORAGE_KEY = "script draft";
/** Folders have megabytes; they are not written down at every key. */
const PAUSE = 400;

let kept: { owner: string; draft: Draft } | null = null;

type Stored = { owner: string; draft: Omit<Draft, "files">; files: ReturnType<typeof fileBodies> };

/** False where there is more than a browser keeps. */
export function saveDraft(owner: string, draft: Draft): boolean {
  try {
    sessionStorage.removeItem(STORAGE_KEY);
    if (draft.files.length === 0) return true;
    const { files, ...rest } = draft;
    sessionStorage.setItem(STORAGE_KEY, JSON.stringify({ owner, draft: rest, files: fileBodies(files) } satisfies Stored));
    return true;
  } catch {
    return false;
  }
}

export function loadDraft(owner: string): Draft {
  try {
    const stored = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "null") as Stored | null;
    if (stored?.owner !== owner) return EMPTY;
    const files = stored.files.map(fileFrom);
    // Running without a sandbox is confirmed each time.
    return { ...EMPTY, ...stored.draft, files, confirmed: false };
  } catch {
    return EMPTY;
  }
}

export function useDraft() {
  const { id: owner } = useCurrentUser();
  const [draft, show] = useState<Draft>(() => (kept?.owner === owner ? kept.draft : loadDraft(owner)));

  const change = (next: Draft | ((before: Draft) => Draft)) => {
    const before = kept?.owner === owner ? kept.draft : draft;
    kept = { owner, draft: typeof next === "function" ? next(before) : next };
    show(kept.draft);
  };

  useEffect(() => {
    // The page outlives its person by a moment when they sign out, and its draft when the job starts.
    const isCurrent = () => isSignedIn(owner) && kept?.draft === draft;
    const timer = setTimeout(() => {
      if (isCurrent()) saveDraft(owner, draft);
    }, PAUSE);
    const leave = (event: BeforeUnloadEvent) => {
      // What cannot be kept is not lost without a question.
      if (isCurrent() && !saveDraft(owner, draft)) event.preventDefault();
    };
    window.addEventListener("beforeunload", leave);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("beforeunload", leave);
    };
  }, [owner, draft]);

  return [draft, change] as const;
}

export const forgetDraft = () => {
  kept = null;
  saveDraft("", EMPTY);
};
