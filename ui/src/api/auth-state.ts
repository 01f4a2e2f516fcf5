/** Who is signed in, and what this server allows. The one answer that every page starts from. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api } from "./client";
import { setCsrfToken } from "./csrf";
import { queryClient } from "./query-client";
import type { SignedIn } from "./types";

export const authStateQuery = queryOptions({
  queryKey: ["auth", "state"],
  queryFn: async () => {
    const state = await answerOf(api.GET("/api/auth/state"));
    setCsrfToken(state.csrfToken);
    return state;
  },
  staleTime: 60_000,
});

export const isSignedIn = (userId: string) => queryClient.getQueryData(authStateQuery.queryKey)?.user?.id === userId;

/** Takes over a new session at once, without asking the server what it just said. */
export function setSignedIn({ user, csrfToken }: SignedIn) {
  setCsrfToken(csrfToken);
  queryClient.setQueryData(authStateQuery.queryKey, (state) =>
    state ? { ...state, setupRequired: false, user, csrfToken } : undefined,
  );
  // With no earlier answer to amend, the next reader fetches a fresh one.
  if (!queryClient.getQueryData(authStateQuery.queryKey)) {
    void queryClient.invalidateQueries({ queryKey: authStateQuery.queryKey });
  }
}

/** Forgets everything that belonged to the person who was signed in. */
export async function setSignedOut() {
  setCsrfToken(null);
  forgetTab();
  queryClient.removeQueries({ predicate: (query) => query.queryKey[0] !== "auth" });
  queryClient.setQueryData(authStateQuery.queryKey, (state) =>
    state ? { ...state, user: null, csrfToken: null } : undefined,
  );
  await queryClient.invalidateQueries({ queryKey: authStateQuery.queryKey });
}

/** Conversations and drafts. */
function forgetTab() {
  try {
    sessionStorage.clear();
  } catch {
    // A browser that keeps nothing has nothing to forget.
  }
}

export async function renewCsrfToken(): Promise<boolean> {
  const state = await queryClient.fetchQuery({ ...authStateQuery, staleTime: 0 });
  return state.csrfToken !== null;
}
