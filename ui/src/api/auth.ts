/** Sign-in, sign-up and password reset, and who is signed in: the query that every page starts from. */
import { queryOptions } from "@tanstack/react-query";
import { answerOf, api, queryClient, setCsrfToken } from "./client";
import { signWithPasskey } from "./passkey";
import type { components } from "./schema";
import type { OAuthProvider, SecondStep, SignedIn } from "./types";

type Schemas = components["schemas"];

export const setUp = (body: Schemas["Setup"]) => answerOf(api.POST("/api/auth/setup", { body }));

export const signUp = (body: Schemas["SignUp"]) => answerOf(api.POST("/api/auth/sign-up", { body }));

export const signIn = (body: Schemas["SignIn"]) => answerOf(api.POST("/api/auth/sign-in", { body }));

/** Whether the first step of a sign-in was not enough. */
export const needsSecondFactor = (answer: SignedIn | SecondStep): answer is SecondStep => "second_factors" in answer;

export const secondStepQuery = queryOptions({
  queryKey: ["auth", "second-factor"],
  queryFn: () => answerOf(api.GET("/api/auth/second-factor")),
  retry: false,
  gcTime: 0,
});

export const finishSignIn = (code: string) => answerOf(api.POST("/api/auth/second-factor", { body: { code } }));

/** With a passkey alone, or after the password. */
export async function signInWithPasskey(): Promise<SignedIn> {
  const { options } = await answerOf(api.POST("/api/auth/passkey/options"));
  return answerOf(api.POST("/api/auth/passkey", { body: { credential: await signWithPasskey(options) } }));
}

export const signOut = () => answerOf(api.POST("/api/auth/sign-out"));

export const verifyEmail = (body: Schemas["Verify"]) => answerOf(api.POST("/api/auth/verify", { body }));

export const resendVerification = (email: string) => answerOf(api.POST("/api/auth/verify/resend", { body: { email } }));

export const askForPasswordReset = (email: string) =>
  answerOf(api.POST("/api/auth/password/forgot", { body: { email } }));

export const resetPassword = (body: Schemas["ResetPassword"]) =>
  answerOf(api.POST("/api/auth/password/reset", { body }));

export const ratePassword = (body: Schemas["PasswordToRate"]) => answerOf(api.POST("/api/auth/password/strength", { body }));

/** OAuth is a journey of whole pages: the address is followed, not fetched. */
export const oauthStart = (provider: OAuthProvider, next: string) =>
  `/api/auth/oauth/${provider}/start?next=${encodeURIComponent(next)}`;

export const authStateQuery = queryOptions({
  queryKey: ["auth", "state"],
  queryFn: async () => {
    const state = await answerOf(api.GET("/api/auth/state"));
    setCsrfToken(state.csrf_token);
    return state;
  },
  staleTime: 60_000,
});

/** What the operator calls the OpenID Connect provider. */
export const oidcName = () => queryClient.getQueryData(authStateQuery.queryKey)?.oidc_name ?? "single sign-on";

export const isSignedIn = (userId: string) => queryClient.getQueryData(authStateQuery.queryKey)?.user?.id === userId;

/** Takes over a new session at once, without a second request. */
export function setSignedIn({ user, csrf_token: csrfToken }: SignedIn) {
  setCsrfToken(csrfToken);
  queryClient.setQueryData(authStateQuery.queryKey, (state) =>
    state ? { ...state, setup_required: false, user, csrf_token: csrfToken } : undefined,
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
    state ? { ...state, user: null, csrf_token: null } : undefined,
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
  return state.csrf_token !== null;
}
