/**
 * What somebody has put together lives as long as their tab: connecting a service on another page, or loading this one
 * again, loses nothing. It never leaves the browser, and goes when they sign out.
 */
import { useEffect, useState } from "react";
import { isSignedIn } from "@/api/auth-state";
import { useCurrentUser } from "@/shell/current-user";
import { type Draft, EMPTY } from "./script-draft";
import { type ScriptFile, bytesOf, fileBodies } from "./script-files";

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
    const files = stored.files.map((file): ScriptFile => ("text" in file ? file : { path: file.path, bytes: bytesOf(file.base64) }));
    // To run without walls is agreed to each time.
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
    const timer = setTimeout(() => {
      // The page outlives its person by a moment when they sign out.
      if (isSignedIn(owner)) saveDraft(owner, draft);
    }, PAUSE);
    const leave = (event: BeforeUnloadEvent) => {
      // What cannot be kept is not lost without a question.
      if (isSignedIn(owner) && !saveDraft(owner, draft)) event.preventDefault();
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
