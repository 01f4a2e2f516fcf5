/**
 * Every failure that a page can show, as one error type.
 *
 * The server answers with problem documents (RFC 9457). What never reached the server, or came back
 * as something else, is given the same shape here, so that no page has to know the difference.
 */

import type { components } from "./schema";

/** The parts that forms show. */
type FieldError = Pick<components["schemas"]["FieldError"], "field" | "message">;

export class ApiProblem extends Error {
  readonly status: number;
  readonly code: string;
  readonly fieldErrors: FieldError[];

  constructor(detail: string, given: { status: number; code: string; fieldErrors?: FieldError[] }) {
    super(detail);
    this.name = "ApiProblem";
    this.status = given.status;
    this.code = given.code;
    this.fieldErrors = given.fieldErrors ?? [];
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

function fieldErrorsOf(value: unknown): FieldError[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((item: unknown) =>
    isRecord(item) && typeof item.field === "string" && typeof item.message === "string"
      ? [{ field: item.field, message: item.message }]
      : [],
  );
}

export function problemFromBody(status: number, body: unknown): ApiProblem {
  if (isRecord(body) && typeof body.detail === "string") {
    return new ApiProblem(body.detail, {
      status,
      code: typeof body.code === "string" ? body.code : "unknown",
      fieldErrors: fieldErrorsOf(body.errors),
    });
  }
  // A proxy in front of the server answers with its own page when the server is down.
  return new ApiProblem(`The server sent an unexpected response (status ${status}). Try again in a moment.`, {
    status,
    code: "not_understood",
  });
}

export const unreachable = () =>
  new ApiProblem("The server could not be reached. Check that the server is running and that you are online, then try again.", {
    status: 0,
    code: "unreachable",
  });

/** What is thrown while an answer is read, as a problem. */
export function problemFromReading(error: unknown): unknown {
  // The connection broke inside the answer.
  if (error instanceof TypeError) return unreachable();
  // Not JSON, such as the sign-in page of a proxy.
  if (error instanceof SyntaxError) return new ApiProblem("The server sent an unexpected response. Reload the page, or try again in a moment.", { status: 0, code: "not_understood" });
  return error;
}

export function sentenceOf(error: unknown): string {
  if (error instanceof ApiProblem) return error.message;
  return "This page has an internal error. Reload the page. If the error happens again, please report it.";
}

/** Whether the server says that something does not exist, or that it belongs to somebody else. */
export const isGone = (error: unknown) => error instanceof ApiProblem && error.status === 404;

/** True for what may pass by itself: a lost connection, or a server that is restarting. */
export function mayPass(error: unknown): boolean {
  return error instanceof ApiProblem && (error.status === 0 || error.status >= 500);
}

/**
 * How soon to ask again. Never, once the first answer was a refusal that stays, such as 404: a query without
 * data is pending again while it asks, and the page would lose what it says every time.
 */
export function pollInterval({ state }: { state: { data: unknown; error: unknown } }, milliseconds: number): number | false {
  return state.data === undefined && state.error !== null && !mayPass(state.error) ? false : milliseconds;
}
