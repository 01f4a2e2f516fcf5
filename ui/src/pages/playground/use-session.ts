import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type Source, openedQuery, playgroundQuery } from "@/api/playground";
import { sentenceOf } from "@/api/problem";
import type { PlaygroundSession } from "@/api/task-types";

export type SessionState =
  | { kind: "loading"; words: string }
  | { kind: "ready"; session: PlaygroundSession }
  | { kind: "unloaded"; reason: string }
  | { kind: "failed"; problem: string };

/** Loads what is to be talked to when the page is opened, and again when somebody asks for it. */
export function useSession(source: Source): { state: SessionState; open: () => void } {
  const [attempt, setAttempt] = useState(1);
  const opened = useQuery(openedQuery(source, attempt));
  const id = opened.data?.id;
  const session = useQuery({ ...playgroundQuery(id ?? ""), enabled: id !== undefined });
  const error = opened.error ?? (session.data === undefined ? session.error : null);
  return { state: error ? { kind: "failed", problem: sentenceOf(error) } : stateOf(id === undefined ? undefined : session.data), open: () => setAttempt((count) => count + 1) };
}

function stateOf(session: PlaygroundSession | undefined): SessionState {
  switch (session?.state) {
    case "ready":
      return { kind: "ready", session };
    case "ended":
      return endOf(session);
    case "stopping":
      return { kind: "loading", words: "Being unloaded" };
    case "loading":
      return { kind: "loading", words: session.job.status === "running" ? "Loading the weights" : "Starting a process for it" };
    case "waiting":
      return { kind: "loading", words: "Waiting for a free device" };
    default:
      return { kind: "loading", words: "Asking for the model" };
  }
}

function endOf({ job }: PlaygroundSession): SessionState {
  if (job.status === "failed") return { kind: "failed", problem: job.errorMessage ?? "The model could not be loaded, and no reason was recorded." };
  const minutes = Number(job.config.idle_minutes ?? 10);
  const reason = job.errorMessage ?? (job.status === "completed" ? `Nobody asked it anything for ${minutes} minutes, so its memory was freed.` : "It was stopped, and its memory was freed.");
  return { kind: "unloaded", reason };
}
