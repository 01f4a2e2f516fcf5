import type { Mode } from "./conversation";
import { STARTING, type SamplingTexts } from "./sampling";

export type PlaygroundSettings = { mode: Mode; sideBySide: boolean; sampling: SamplingTexts };

const STORAGE_KEY = "playground settings";
const FIRST: PlaygroundSettings = { mode: "chat", sideBySide: true, sampling: STARTING };

/** How somebody likes to talk, for as long as the tab lives. */
export function loadSettings(): PlaygroundSettings {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "{}") as Partial<PlaygroundSettings>;
    return { ...FIRST, ...kept, sampling: { ...STARTING, ...kept.sampling } };
  } catch {
    return FIRST;
  }
}

export function saveSettings(settings: PlaygroundSettings) {
  try {
    sessionStorage.setItem(STORAGE_KEY, JSON.stringify(settings));
  } catch {
    // Storage is full or forbidden: the next page starts as the first did.
  }
}
