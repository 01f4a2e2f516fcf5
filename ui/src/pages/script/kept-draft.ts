import { useState } from "react";
import { type Draft, EMPTY } from "./script-draft";

/** Kept while the tab lives, so that connecting a service on another page loses nothing. */
let kept: Draft = EMPTY;

export function useDraft() {
  const [draft, show] = useState<Draft>(kept);
  const change = (next: Draft | ((before: Draft) => Draft)) => {
    kept = typeof next === "function" ? next(kept) : next;
    show(kept);
  };
  return [draft, change] as const;
}

export const forgetDraft = () => {
  kept = EMPTY;
};
