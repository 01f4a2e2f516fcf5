import createClient from "openapi-fetch";
import { csrfToken } from "./csrf";
import { problemFromBody } from "./problem";
import type { paths } from "./schema";
import { createSessionFetch } from "./session-fetch";
import { askToSignInAgain } from "./sign-in-again";

/** For what is not JSON in both directions. */
export const sessionFetch = createSessionFetch({
  fetch: (request) => window.fetch(request),
  csrfToken,
  signInAgain: askToSignInAgain,
  // Imported when needed: that module is itself a user of this one.
  renewCsrfToken: async () => (await import("./auth-state")).renewCsrfToken(),
});

export const api = createClient<paths>({ baseUrl: window.location.origin, credentials: "same-origin", fetch: sessionFetch });

type Outcome<T> = { data?: T; error?: unknown; response: Response };

/** The answer, or the problem thrown. */
export async function answerOf<T>(request: Promise<Outcome<T>>): Promise<T> {
  const { data, error, response } = await request;
  if (!response.ok) throw problemFromBody(response.status, error);
  return data as T;
}
