// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { renameMe } from "@/api/account";
import { queryClient, useSignInRequired } from "@/api/client";
import { ApiProblem } from "@/api/problem";
import { serveFrom } from "@/test-server";
import { ada } from "@/test-user";
import { SignInAgainDialog } from "./sign-in-again-dialog";

let signedIn = false;

function Page() {
  return useSignInRequired() ? <SignInAgainDialog user={ada} /> : <p>Page</p>;
}

function startServer() {
  return serveFrom(({ path, body }) => {
    if (path === "/api/auth/sign-in") {
      if ((body as { password: string }).password !== "right password") {
        return { status: 401, body: { code: "wrong_credentials", detail: "Email address or password is wrong." } };
      }
      signedIn = true;
      return { body: { user: ada, csrfToken: "new" } };
    }
    if (!signedIn) return { status: 401, body: { code: "not_signed_in", detail: "Sign in to continue." } };
    return { body: { ...ada, ...(body as object) } };
  });
}

beforeEach(() => {
  signedIn = false;
  render(
    <QueryClientProvider client={queryClient}>
      <Page />
    </QueryClientProvider>,
  );
});

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

it("finishes what was being done once the person has signed in again", async () => {
  const sent = startServer();
  const user = userEvent.setup();
  const rename = renameMe("Ada L.");
  await screen.findByRole("dialog", { name: "Your session has ended" });
  await user.type(screen.getByLabelText("Password"), "wrong password");
  await user.click(screen.getByRole("button", { name: "Sign in" }));
  expect(await screen.findByText("Email address or password is wrong.")).toBeDefined();
  await user.clear(screen.getByLabelText("Password"));
  await user.type(screen.getByLabelText("Password"), "right password{Enter}");
  expect((await rename).name).toBe("Ada L.");
  expect(await screen.findByText("Page")).toBeDefined();
  expect(sent.filter((request) => request.method === "PATCH")).toHaveLength(2);
});

it("asks once for all requests that wait", async () => {
  startServer();
  const user = userEvent.setup();
  const both = Promise.all([renameMe("A"), renameMe("B")]);
  await screen.findByRole("dialog");
  expect(screen.getAllByRole("dialog")).toHaveLength(1);
  await user.type(screen.getByLabelText("Password"), "right password{Enter}");
  expect((await both).map((answer) => answer.name)).toEqual(["A", "B"]);
});

it("gives the request up when the person would rather not", async () => {
  startServer();
  const user = userEvent.setup();
  const rename = renameMe("Ada L.").catch((error: unknown) => error);
  await screen.findByRole("dialog");
  await user.click(screen.getByRole("button", { name: "Not now" }));
  const failure = await rename;
  expect(failure).toBeInstanceOf(ApiProblem);
  expect(failure).toMatchObject({ code: "not_signed_in" });
  expect(await screen.findByText("Page")).toBeDefined();
});
