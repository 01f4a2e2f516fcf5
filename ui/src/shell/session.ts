/** The signed-in person, and what follows a sign-in. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useRouter } from "@tanstack/react-router";
import { createContext, use } from "react";
import { authStateQuery, needsSecondFactor, oidcName, secondStepQuery, setSignedIn } from "@/api/auth";
import type { OAuthProvider, SecondStep, SignedIn, User } from "@/api/types";
import { safeNextPath } from "./address";

export const CurrentUser = createContext<User | null>(null);

/** Whose work this is. Only for pages of the app, which are never shown to somebody who is not signed in. */
export function useCurrentUser(): User {
  const user = use(CurrentUser);
  if (user === null) throw new Error("This page can only be shown to a signed-in user.");
  return user;
}

/** The folder whose runs `bloom ui` shows; null on a server with accounts. There is nothing to start or to control there. */
export const useFolder = (): string | null => useQuery(authStateQuery).data?.folder ?? null;

/** What follows every way of signing in: ask for the second factor, or remember who it is and go where they were going. */
export function useSignInDone(next?: string) {
  const router = useRouter();
  const queryClient = useQueryClient();
  return (answer: SignedIn | SecondStep) => {
    if (needsSecondFactor(answer)) {
      queryClient.setQueryData(secondStepQuery.queryKey, answer);
      void router.navigate({ to: "/auth/second-factor", search: { next } });
      return;
    }
    // Whoever used this page before must not shine through.
    queryClient.removeQueries({ predicate: (query) => query.queryKey[0] !== "auth" });
    setSignedIn(answer);
    router.history.replace(safeNextPath(next));
  };
}

const NAMES: Record<string, string> = { github: "GitHub", google: "Google" } satisfies Partial<Record<OAuthProvider, string>>;

/** The operator names the OpenID Connect provider. A provider that was removed has only its own name left. */
export function providerName(provider: string): string {
  if (provider === "oidc") return oidcName();
  return NAMES[provider] ?? provider;
}
