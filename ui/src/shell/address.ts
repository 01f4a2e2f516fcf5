/**
 * What pages read from the address: search parameters, the path after sign-in, and secrets after "#".
 * Unknown or malformed parameters are dropped, so that an old link still opens.
 */
import { useLocation, useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";

const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

type AuthSearch = { tab?: "sign-up"; next?: string; error?: string };

export function authSearch(given: Record<string, unknown>): AuthSearch {
  return {
    tab: given.tab === "sign-up" ? "sign-up" : undefined,
    next: text(given.next),
    error: text(given.error),
  };
}

type ProjectsSearch = { search?: string; page?: number };

export function projectsSearch(given: Record<string, unknown>): ProjectsSearch {
  const page = Number(given.page);
  return {
    // A search for "7" arrives as a number.
    search: typeof given.search === "number" ? String(given.search) : text(given.search),
    page: Number.isInteger(page) && page > 1 ? page : undefined,
  };
}

type JobsSearch = ProjectsSearch & { status?: string; project?: string };

export function jobsSearch(given: Record<string, unknown>): JobsSearch {
  return { ...projectsSearch(given), status: text(given.status), project: text(given.project) };
}

/** The tabs of a job page, in their order. The first one needs no word in the address. */
export const JOB_TABS = ["overview", "charts", "samples", "logs", "checkpoints", "evaluate", "config", "system"] as const;
export type JobTab = (typeof JOB_TABS)[number];
type JobSearch = { tab?: Exclude<JobTab, "overview"> };

export function jobSearch(given: Record<string, unknown>): JobSearch {
  return { tab: JOB_TABS.find((tab): tab is Exclude<JobTab, "overview"> => tab === given.tab && tab !== "overview") };
}

/** A job that the form starts like. */
type NewJobSearch = { like?: string };

export function newJobSearch(given: Record<string, unknown>): NewJobSearch {
  return { like: text(given.like) };
}

type FinetuneSearch = NewJobSearch & { dataset?: string; model?: string; project?: string };

/** What is already chosen when somebody comes from a dataset, a model or a project. */
export function finetuneSearch(given: Record<string, unknown>): FinetuneSearch {
  return { ...newJobSearch(given), dataset: text(given.dataset), model: text(given.model), project: text(given.project) };
}

type ScriptSearch = NewJobSearch & { project?: string };

export function scriptSearch(given: Record<string, unknown>): ScriptSearch {
  return { ...newJobSearch(given), project: text(given.project) };
}

/** The provider to connect, and the page of this app to return to. */
type ProvidersSearch = { connect?: string; back?: string };

export function providersSearch(given: Record<string, unknown>): ProvidersSearch {
  return { connect: text(given.connect), back: text(given.back) };
}

/** A view of the run list, and the runs that are chosen in it. Lists are joined with commas. */
export type RunsSearch = { query?: string; columns?: string; group?: string; sort?: string; source?: string; view?: string; run?: string };

const words = (value: unknown): string | undefined => (typeof value === "number" || typeof value === "boolean" ? String(value) : text(value));

export function runsSearch(given: Record<string, unknown>): RunsSearch {
  return {
    query: words(given.query),
    columns: text(given.columns),
    // Empty means: not grouped.
    group: typeof given.group === "string" ? given.group : undefined,
    sort: text(given.sort),
    source: words(given.source),
    view: text(given.view),
    run: text(given.run),
  };
}

/** What the list of training jobs, which the run list replaced, was asked for. */
export function runsOfJobs({ search, status, project }: JobsSearch): RunsSearch {
  const parts = [search && JSON.stringify(search), status === "active" ? "status in (queued, provisioning, running, pausing, cancelling)" : status && `status = ${status}`, project && `project_id = ${project}`];
  return { query: parts.filter(Boolean).join(" and ") || undefined };
}

type CompareSearch = { job?: string[] };

const MOST_COMPARED = 8;

export function compareSearch(given: Record<string, unknown>): CompareSearch {
  const ids = (Array.isArray(given.job) ? given.job : [given.job]).flatMap((id) => text(id)?.split(",") ?? []);
  const job = [...new Set(ids)].slice(0, MOST_COMPARED);
  return { job: job.length > 0 ? job : undefined };
}

export type CheckpointsSearch = ProjectsSearch & { project?: string; best?: true };

export function checkpointsSearch(given: Record<string, unknown>): CheckpointsSearch {
  return { ...projectsSearch(given), project: text(given.project), best: given.best === true ? true : undefined };
}

/** The model to load: a run, one checkpoint of it, or a model of one's own. */
/** `other`: a second checkpoint of the run, to compare with. */
export type PlaygroundSearch = { job?: string; checkpoint?: string; other?: string; model?: string };

export function playgroundSearch(given: Record<string, unknown>): PlaygroundSearch {
  const job = text(given.job);
  return job ? { job, checkpoint: text(given.checkpoint), other: text(given.other) } : { model: text(given.model) };
}

const SETTINGS_TABS = ["profile", "sessions", "tokens", "alerts", "people", "audit"] as const;
export type SettingsTab = (typeof SETTINGS_TABS)[number];
/** `linked` and `error`: how linking an account at a sign-in provider ended. */
type SettingsSearch = { tab?: SettingsTab; linked?: string; error?: string };

export function settingsSearch(given: Record<string, unknown>): SettingsSearch {
  return { tab: SETTINGS_TABS.find((tab) => tab === given.tab), linked: text(given.linked), error: text(given.error) };
}

const HOME = "/dashboard";

/**
 * Where to go after signing in. `next` comes from the address bar, so anybody can put anything there:
 * only a path of this site is followed, or the page would lend its name to somebody else's.
 */
export function safeNextPath(next: string | undefined): string {
  if (!next?.startsWith("/") || hasControlCharacter(next)) return HOME;
  let target: URL;
  try {
    // Parsing as the browser does catches "//host", "/\host" and every other way to write an origin.
    target = new URL(next, window.location.origin);
  } catch {
    return HOME;
  }
  if (target.origin !== window.location.origin) return HOME;
  const path = target.pathname;
  if (path.startsWith("//") || path === "/auth" || path.startsWith("/auth/") || path.startsWith("/api/")) return HOME;
  return path + target.search + target.hash;
}

function hasControlCharacter(path: string): boolean {
  // Browsers silently drop tabs and line ends inside addresses, which would hide "/\t/host" from the check above.
  return Array.from(path).some((character) => character < " " || character === "\u007f");
}

/** A secret from the part of the address after "#", which browsers never send to a server. */
export function fragmentValue(fragment: string, name: string): string | null {
  return new URLSearchParams(fragment.replace(/^#/, "")).get(name) || null;
}

/** Reads a secret from the address, then takes it out, so that it stays in neither the history nor a screenshot. */
export function useFragment(name: string): string | null {
  const value = fragmentValue(useLocation().hash, name);
  const [kept, setKept] = useState(value);
  // A link pasted into the address of a page that is already open changes only the fragment.
  if (value !== null && value !== kept) setKept(value);

  const navigate = useNavigate();
  const present = value !== null;
  useEffect(() => {
    if (present) void navigate({ to: ".", search: true, hash: "", replace: true });
  }, [present, navigate]);
  return kept;
}
