/** What pages keep in the address. Anything unknown or malformed is dropped, so that an old link still opens. */

const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

export type AuthSearch = { tab?: "sign-up"; next?: string; error?: string };

export function authSearch(given: Record<string, unknown>): AuthSearch {
  return {
    tab: given.tab === "sign-up" ? "sign-up" : undefined,
    next: text(given.next),
    error: text(given.error),
  };
}

export type ProjectsSearch = { search?: string; page?: number };

export function projectsSearch(given: Record<string, unknown>): ProjectsSearch {
  const page = Number(given.page);
  return {
    // A search for "7" arrives as a number.
    search: typeof given.search === "number" ? String(given.search) : text(given.search),
    page: Number.isInteger(page) && page > 1 ? page : undefined,
  };
}

export type JobsSearch = ProjectsSearch & { status?: string; project?: string };

export function jobsSearch(given: Record<string, unknown>): JobsSearch {
  return { ...projectsSearch(given), status: text(given.status), project: text(given.project) };
}

/** A job whose config the form starts with. */
export type NewJobSearch = { like?: string };

export function newJobSearch(given: Record<string, unknown>): NewJobSearch {
  return { like: text(given.like) };
}

export type FinetuneSearch = NewJobSearch & { dataset?: string; model?: string; project?: string };

/** What is already chosen when somebody comes from a dataset, a model or a project. */
export function finetuneSearch(given: Record<string, unknown>): FinetuneSearch {
  return { ...newJobSearch(given), dataset: text(given.dataset), model: text(given.model), project: text(given.project) };
}

export type ScriptSearch = { project?: string };

export function scriptSearch(given: Record<string, unknown>): ScriptSearch {
  return { project: text(given.project) };
}

/** Which service is to be connected, and the page of this app that asked for it. */
export type ProvidersSearch = { connect?: string; back?: string };

export function providersSearch(given: Record<string, unknown>): ProvidersSearch {
  return { connect: text(given.connect), back: text(given.back) };
}

export type CompareSearch = { job?: string[]; pick?: true };

const MOST_COMPARED = 8;

export function compareSearch(given: Record<string, unknown>): CompareSearch {
  const ids = (Array.isArray(given.job) ? given.job : [given.job]).flatMap((id) => text(id)?.split(",") ?? []);
  const job = [...new Set(ids)].slice(0, MOST_COMPARED);
  return { job: job.length > 0 ? job : undefined, pick: given.pick === true ? true : undefined };
}

export type CheckpointsSearch = ProjectsSearch & { project?: string; best?: true };

export function checkpointsSearch(given: Record<string, unknown>): CheckpointsSearch {
  return { ...projectsSearch(given), project: text(given.project), best: given.best === true ? true : undefined };
}

/** What to talk to: a run, one checkpoint of it, or a model of one's own. */
export type PlaygroundSearch = { job?: string; checkpoint?: string; model?: string };

export function playgroundSearch(given: Record<string, unknown>): PlaygroundSearch {
  const job = text(given.job);
  return job ? { job, checkpoint: text(given.checkpoint) } : { model: text(given.model) };
}

const SETTINGS_TABS = ["profile", "sessions", "tokens", "people", "audit"] as const;
export type SettingsTab = (typeof SETTINGS_TABS)[number];
export type SettingsSearch = { tab?: SettingsTab };

export function settingsSearch(given: Record<string, unknown>): SettingsSearch {
  return { tab: SETTINGS_TABS.find((tab) => tab === given.tab) };
}
