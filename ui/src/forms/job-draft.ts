/**
 * What somebody typed into a form for a training job, until the job is started.
 * A draft belongs to an entry in the history of its tab: Back and a reload bring it back, a link opens a new form. It
 * never leaves the browser, and is deleted at sign-out.
 */
import type { Json } from "./job-fields";
import type { JobFormValues } from "./job-form";

export type JobDraft = {
  values: JobFormValues;
  /** The config that the values show. */
  config: Json;
  /** The text in the JSON editor; null while the config is shown as a form. */
  json: string | null;
};

type Stored = { owner: string; draft: JobDraft };

const storageKey = (entry: string) => `job draft ${entry}`;

export function saveJobDraft(entry: string, owner: string, draft: JobDraft) {
  try {
    sessionStorage.setItem(storageKey(entry), JSON.stringify({ owner, draft } satisfies Stored));
  } catch {
    // A browser that keeps nothing keeps no drafts either.
  }
}

export function loadJobDraft(entry: string, owner: string): JobDraft | null {
  try {
    const stored = JSON.parse(sessionStorage.getItem(storageKey(entry)) ?? "null") as Stored | null;
    return stored?.owner === owner ? stored.draft : null;
  } catch {
    return null;
  }
}

export function forgetJobDraft(entry: string) {
  try {
    sessionStorage.removeItem(storageKey(entry));
  } catch {
    // It was not kept.
  }
}
