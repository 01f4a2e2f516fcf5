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

const SETTINGS_TABS = ["profile", "sessions", "tokens", "people", "audit"] as const;
export type SettingsTab = (typeof SETTINGS_TABS)[number];
export type SettingsSearch = { tab?: SettingsTab };

export function settingsSearch(given: Record<string, unknown>): SettingsSearch {
  return { tab: SETTINGS_TABS.find((tab) => tab === given.tab) };
}
