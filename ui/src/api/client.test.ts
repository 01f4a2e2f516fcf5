import { describe, expect, it, vi } from "vitest";
import { answerOf, createSessionFetch } from "./client";

const problem = (status: number, code: string) => Response.json({ code, detail: "…" }, { status });
const ok = () => Response.json({ fine: true });
const post = (path = "/api/projects") =>
  new Request(`http://localhost${path}`, { method: "POST", body: JSON.stringify({ name: "kept" }) });

function setUp(answers: (() => Response)[], options: { signedIn?: boolean } = {}) {
  let token: string | null = "first";
  const seen: { token: string | null; body: string }[] = [];
  const keys: (string | null)[] = [];
  const fetch = vi.fn(async (request: Request) => {
    keys.push(request.headers.get("Idempotency-Key"));
    seen.push({ token: request.headers.get("X-CSRF-Token"), body: await request.text() });
    const answer = answers.shift();
    if (!answer) throw new TypeError("Failed to fetch");
    return answer();
  });
  const signInAgain = vi.fn(async () => {
    token = "second";
    return options.signedIn ?? true;
  });
  const confirm = vi.fn(async () => options.signedIn ?? true);
  const renewCsrfToken = vi.fn(async () => {
    token = "renewed";
    return true;
  });
  return { seen, keys, signInAgain, confirm, renewCsrfToken, send: createSessionFetch({ fetch, csrfToken: () => token, signInAgain, confirm, renewCsrfToken }) };
}

describe("a request of a page with a session", () => {
  it("carries the CSRF token when it changes something, and not when it reads", async () => {
    const { send, seen } = setUp([ok, ok]);
    await send(post());
    await send(new Request("http://localhost/api/projects"));
    expect(seen.map((request) => request.token)).toEqual(["first", null]);
  });

  it("keeps its key until an answer arrives", async () => {
    const { send, keys } = setUp([() => { throw new TypeError("Failed to fetch"); }, ok, ok]);
    await expect(send(post())).rejects.toThrow(/reach/);
    await send(post());
    await send(post());
    expect(keys[0]).toBeTruthy();
    expect(keys[1]).toBe(keys[0]);
    expect(keys[2]).not.toBe(keys[0]);
  });

  it("is sent again, whole and with the new token, once the person has signed in again", async () => {
    const { send, seen } = setUp([() => problem(401, "not_signed_in"), ok]);
    const response = await send(post());
    expect(response.status).toBe(200);
    expect(seen[1]).toEqual({ token: "second", body: '{"name":"kept"}' });
  });

  it("fails with the server's answer when the person does not sign in", async () => {
    const { send, seen } = setUp([() => problem(401, "not_signed_in")], { signedIn: false });
    expect((await send(post())).status).toBe(401);
    expect(seen).toHaveLength(1);
  });

  it("asks nobody to sign in while signing in", async () => {
    const { send, signInAgain } = setUp([() => problem(401, "not_signed_in")]);
    await send(post("/api/auth/sign-out"));
    expect(signInAgain).not.toHaveBeenCalled();
  });

  it("takes a wrong password for what it is, not for an ended session", async () => {
    const { send, signInAgain } = setUp([() => problem(401, "wrong_credentials")]);
    await send(post("/api/me/password"));
    expect(signInAgain).not.toHaveBeenCalled();
  });

  it("is sent again, whole, once the person has confirmed who they are", async () => {
    const { send, seen, confirm } = setUp([() => problem(403, "fresh_sign_in_required"), ok]);
    expect((await send(post("/api/me/tokens"))).status).toBe(200);
    expect(confirm).toHaveBeenCalledOnce();
    expect(seen[1]).toEqual({ token: "first", body: '{"name":"kept"}' });
  });

  it("fails with the server's answer when the person does not confirm who they are", async () => {
    const { send, seen } = setUp([() => problem(403, "fresh_sign_in_required")], { signedIn: false });
    expect((await send(post("/api/me/tokens"))).status).toBe(403);
    expect(seen).toHaveLength(1);
  });

  it("fetches a new CSRF token once when another tab has replaced it", async () => {
    const { send, seen, renewCsrfToken } = setUp([() => problem(403, "csrf"), () => problem(403, "csrf")]);
    expect((await send(post())).status).toBe(403);
    expect(renewCsrfToken).toHaveBeenCalledOnce();
    expect(seen.map((request) => request.token)).toEqual(["first", "renewed"]);
  });

  it("says in a sentence that the server cannot be reached", async () => {
    const { send } = setUp([]);
    await expect(send(post())).rejects.toMatchObject({ code: "unreachable" });
  });
});

describe("an answer that cannot be read", () => {
  const response = new Response();

  it("is called an unexpected response when it is no JSON, such as the sign-in page of a proxy", async () => {
    await expect(answerOf(Promise.reject(new SyntaxError("Unexpected token '<'")))).rejects.toMatchObject({ code: "not_understood" });
  });

  it("is called a lost connection when it broke off", async () => {
    await expect(answerOf(Promise.reject(new TypeError("network error")))).rejects.toMatchObject({ code: "unreachable" });
  });

  it("stays what it is when it was called off, or is a problem already", async () => {
    const off = new DOMException("aborted", "AbortError");
    await expect(answerOf(Promise.reject(off))).rejects.toBe(off);
    await expect(answerOf(Promise.resolve({ error: { code: "busy", detail: "Wait." }, response: new Response(null, { status: 409 }) }))).rejects.toMatchObject({ code: "busy" });
    expect(await answerOf(Promise.resolve({ data: 1, response }))).toBe(1);
  });
});
