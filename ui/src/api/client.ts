/**
 * The typed API client and the query cache.
 * Every request carries the CSRF token. When the session has ended, a request waits until the person has signed in
 * again and is then sent once more, so that nothing that was typed is lost; so does a request for which the server asks
 * to confirm who it is. A request that creates something keeps its
 * key until an answer arrives: sent again after a broken connection, it creates nothing twice.
 */
import { QueryClient } from "@tanstack/react-query";
import createClient from "openapi-fetch";
import { useSyncExternalStore } from "react";
import { ApiProblem, mayPass, problemFromBody, problemFromReading, unreachable } from "./problem";
import type { paths } from "./schema";

const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);

type Surroundings = {
  fetch: (request: Request) => Promise<Response>;
  csrfToken: () => string | null;
  /** Resolves to whether the same person is signed in again. */
  signInAgain: () => Promise<boolean>;
  /** Resolves to whether the person has confirmed who they are. */
  confirm: () => Promise<boolean>;
  /** Fetches a fresh token; resolves to whether there is one. */
  renewCsrfToken: () => Promise<boolean>;
};

async function codeOf(response: Response): Promise<string> {
  return problemFromBody(response.status, await response.clone().json().catch(() => null)).code;
}

export function createSessionFetch(around: Surroundings) {
  /** Keys of requests whose answer has not arrived, by method, address and body. */
  const keys = new Map<string, string>();

  async function send(request: Request): Promise<Response> {
    const token = around.csrfToken();
    if (token !== null && !SAFE_METHODS.has(request.method)) request.headers.set("X-CSRF-Token", token);
    const same = request.method === "POST" ? `${request.url}\n${await request.clone().text()}` : null;
    if (same !== null) {
      const key = keys.get(same) ?? crypto.randomUUID();
      keys.set(same, key);
      request.headers.set("Idempotency-Key", key);
    }
    try {
      const response = await around.fetch(request);
      if (same !== null) keys.delete(same);
      noteBuild(response.headers.get("X-App-Build"));
      noteReach(isFromServer(response));
      return response;
    } catch (error) {
      // A request that was called off is not a failure of the connection.
      if (request.signal.aborted) throw error;
      noteReach(false);
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
    if (response.status === 403 && (await codeOf(response)) === "fresh_sign_in_required") {
      return (await around.confirm()) ? send(again) : response;
    }
    // Signing in from another tab replaces the token this page was given.
    if (response.status === 403 && (await codeOf(response)) === "csrf") {
      return (await around.renewCsrfToken()) ? send(again) : response;
    }
    return response;
  };
}

/** The build of the app that this page is, by its first script; null while developing, and in tests. */
const ownBuild = globalThis.document?.querySelector('script[type="module"][src^="/assets/"]')?.getAttribute("src")?.split("/").at(-1) ?? null;
let outdated = false;

function noteBuild(served: string | null) {
  if (outdated || served === null || ownBuild === null || served === ownBuild) return;
  outdated = true;
  announce();
}

/** Whether the server has a newer version of the app than this page. */
export const useOutdated = () => useSyncExternalStore(subscribe, () => outdated);

let away = false;

/** A proxy answers with a page of its own while the server behind it is down. */
const isFromServer = ({ status, headers }: Response) => status < 502 || /json/.test(headers.get("Content-Type") ?? "");

function noteReach(reached: boolean) {
  if (away === !reached) return;
  away = !reached;
  announce();
}

/** Whether the last request did not reach the server. */
export const useUnreachable = () => useSyncExternalStore(subscribe, () => away);

/** What a page says about a failed query: nothing while the notice above it says that the server cannot be reached. */
export function useFailure(error: unknown): unknown {
  return useUnreachable() && mayPass(error) ? null : error;
}

const listeners = new Set<() => void>();

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

const announce = () => listeners.forEach((listener) => listener());

/** A question to the person, which a dialog shows. It is asked once for any number of waiting requests. */
function createQuestion() {
  let open: { answer: Promise<boolean>; settle: (yes: boolean) => void } | null = null;
  return {
    ask(): Promise<boolean> {
      if (open === null) {
        let settle!: (yes: boolean) => void;
        const answer = new Promise<boolean>((resolve) => {
          settle = resolve;
        });
        open = { answer, settle };
        announce();
      }
      return open.answer;
    },
    answer(yes: boolean) {
      open?.settle(yes);
      open = null;
      announce();
    },
    useOpen: () => useSyncExternalStore(subscribe, () => open !== null),
  };
}

/** Whether the same person is signed in again. */
export const { ask: askToSignInAgain, answer: answerSignInAgain, useOpen: useSignInRequired } = createQuestion();

/** Whether the person has confirmed who they are. */
export const { ask: askToConfirm, answer: answerConfirm, useOpen: useConfirmRequired } = createQuestion();

/** Asked also when the browser says that it is offline: the server may be this computer. */
const networkMode = "always";

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      networkMode,
      refetchOnReconnect: true,
      staleTime: 15_000,
      retry: (failures, error) => failures < 2 && mayPass(error),
    },
    mutations: { networkMode, retry: false },
  },
});

/** The token that proves to the server that an unsafe request was made by this page. It changes with the session. */
let current: string | null = null;

const csrfToken = () => current;

export function setCsrfToken(token: string | null) {
  current = token;
}

/** For what is not JSON in both directions. */
export const sessionFetch = createSessionFetch({
  fetch: (request) => window.fetch(request),
  csrfToken,
  signInAgain: askToSignInAgain,
  confirm: askToConfirm,
  // Imported when needed: that module is itself a user of this one.
  renewCsrfToken: async () => (await import("./auth")).renewCsrfToken(),
});

// There is no page around this module where a test only needs a pure function of a component's file.
export const api = createClient<paths>({ baseUrl: globalThis.location?.origin, credentials: "same-origin", fetch: sessionFetch });

type Outcome<T> = { data?: T; error?: unknown; response: Response };

/** The answer, or the problem thrown. */
export async function answerOf<T>(request: Promise<Outcome<T>>): Promise<T> {
  const { data, error, response } = await request.catch((problem: unknown) => {
    throw problemFromReading(problem);
  });
  if (!response.ok) throw problemFromBody(response.status, error);
  return data as T;
}

const OFFSET = "Upload-Offset";

async function ask(address: string, init: RequestInit, sent: number): Promise<number> {
  const response = await sessionFetch(new Request(new URL(address, window.location.origin), { credentials: "same-origin", ...init }));
  // An answer without a body cannot say it itself.
  if (response.status === 404) throw new ApiProblem("The dataset or model of this upload no longer exists on the server. Start a new upload.", { status: 404, code: "not_found" });
  if (!response.ok) throw problemFromBody(response.status, await response.json().catch(() => null));
  const offset = Number(response.headers.get(OFFSET) ?? Number.NaN);
  return Number.isInteger(offset) ? offset : sent;
}

/** How many bytes the server has. */
export const receivedAt = (address: string, signal: AbortSignal) => ask(address, { method: "HEAD", signal }, 0);

/** Resolves to how many bytes the server then has. */
export const sendAt = (address: string, bytes: ArrayBuffer, offset: number, signal: AbortSignal) =>
  ask(
    address,
    { method: "PATCH", body: bytes, signal, headers: { [OFFSET]: String(offset), "Content-Type": "application/octet-stream" } },
    offset + bytes.byteLength,
  );
