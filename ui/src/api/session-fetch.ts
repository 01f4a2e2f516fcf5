/** `fetch` for a page with a session: proves its origin, and survives the end of the session. */
import { problemFromBody, unreachable } from "./problem";

const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);

type Surroundings = {
  fetch: (request: Request) => Promise<Response>;
  csrfToken: () => string | null;
  /** Resolves to whether the same person is signed in again. */
  signInAgain: () => Promise<boolean>;
  /** Fetches a fresh token; resolves to whether there is one. */
  renewCsrfToken: () => Promise<boolean>;
};

async function codeOf(response: Response): Promise<string> {
  return problemFromBody(response.status, await response.clone().json().catch(() => null)).code;
}

export function createSessionFetch(around: Surroundings) {
  async function send(request: Request): Promise<Response> {
    const token = around.csrfToken();
    if (token !== null && !SAFE_METHODS.has(request.method)) request.headers.set("X-CSRF-Token", token);
    try {
      return await around.fetch(request);
    } catch (error) {
      // A request that was called off is not a failure of the connection.
      if (request.signal.aborted) throw error;
      throw unreachable();
    }
  }

  return async function sessionFetch(request: Request): Promise<Response> {
    const again = request.clone();
    const response = await send(request);
    // The auth pages handle their own refusals; asking to sign in while signing in would go round in circles.
    const entering = new URL(again.url).pathname.startsWith("/api/auth/");
    if (!entering && response.status === 401 && (await codeOf(response)) === "not_signed_in") {
      return (await around.signInAgain()) ? send(again) : response;
    }
    // Signing in from another tab replaces the token this page was given.
    if (response.status === 403 && (await codeOf(response)) === "csrf") {
      return (await around.renewCsrfToken()) ? send(again) : response;
    }
    return response;
  };
}
