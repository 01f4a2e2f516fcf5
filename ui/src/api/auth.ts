import { answerOf, api } from "./client";
import type { components } from "./schema";
import type { OAuthProvider } from "./types";

type Schemas = components["schemas"];

export const setUp = (body: Schemas["Setup"]) => answerOf(api.POST("/api/auth/setup", { body }));

export const signUp = (body: Schemas["SignUp"]) => answerOf(api.POST("/api/auth/sign-up", { body }));

export const signIn = (body: Schemas["SignIn"]) => answerOf(api.POST("/api/auth/sign-in", { body }));

export const signOut = () => answerOf(api.POST("/api/auth/sign-out"));

export const verifyEmail = (token: string) => answerOf(api.POST("/api/auth/verify", { body: { token } }));

export const resendVerification = (email: string) => answerOf(api.POST("/api/auth/verify/resend", { body: { email } }));

export const askForPasswordReset = (email: string) =>
  answerOf(api.POST("/api/auth/password/forgot", { body: { email } }));

export const resetPassword = (body: Schemas["ResetPassword"]) =>
  answerOf(api.POST("/api/auth/password/reset", { body }));

/** OAuth is a journey of whole pages: the address is followed, not fetched. */
export const oauthStart = (provider: OAuthProvider, next: string) =>
  `/api/auth/oauth/${provider}/start?next=${encodeURIComponent(next)}`;
