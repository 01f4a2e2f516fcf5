// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { createToken } from "@/api/account";
import { queryClient, useConfirmRequired } from "@/api/client";
import { serveFrom } from "@/test-server";
import { ada } from "@/test-user";
import { ConfirmIdentityDialog } from "./confirm-identity-dialog";

let confirmed = false;

function Page() {
  return useConfirmRequired() ? <ConfirmIdentityDialog user={ada} /> : <p>Page</p>;
}

function startServer(code: boolean) {
  return serveFrom(({ method, path, body }) => {
    if (path === "/api/me/confirm" && method === "GET") return { body: { password: true, code, passkey: false, providers: [] } };
    if (path === "/api/me/confirm") {
      if ((body as { password: string }).password !== "right password") {
        const detail = "The password is wrong.";
        return { status: 422, body: { code: "invalid_input", detail, errors: [{ field: "password", code: "wrong_password", message: detail }] } };
      }
      confirmed = true;
      return { status: 204 };
    }
    if (!confirmed) return { status: 403, body: { code: "fresh_sign_in_required", detail: "Confirm that it is you." } };
    return { status: 201, body: { token: "bloom_x" } };
  });
}

const create = () => createToken({ name: "laptop", scopes: ["read"], expires_in_days: 90 });

beforeEach(() => {
  confirmed = false;
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

it("sends the call again once the person has confirmed who they are", async () => {
  const sent = startServer(false);
  const user = userEvent.setup();
  const created = create();
  await screen.findByRole("dialog", { name: "Confirm it is you" });
  const password = await screen.findByLabelText("Password");
  await vi.waitFor(() => expect(document.activeElement).toBe(password));
  await user.type(password, "wrong password{Enter}");
  expect(await screen.findByText("The password is wrong.")).toBeDefined();
  await user.clear(screen.getByLabelText("Password"));
  await user.type(screen.getByLabelText("Password"), "right password{Enter}");
  expect((await created).token).toBe("bloom_x");
  expect(await screen.findByText("Page")).toBeDefined();
  expect(sent.filter(({ path }) => path === "/api/me/tokens").filter(({ method }) => method === "POST")).toHaveLength(2);
});

it("asks for the code too when there is a second factor", async () => {
  const sent = startServer(true);
  const user = userEvent.setup();
  const created = create();
  await user.type(await screen.findByLabelText("Password"), "right password{Enter}");
  expect(await screen.findByText("Enter the code.")).toBeDefined();
  await user.type(screen.getByLabelText("Code"), "123456{Enter}");
  await created;
  expect(sent.find(({ method, path }) => method === "POST" && path === "/api/me/confirm")?.body).toEqual({ password: "right password", code: "123456" });
});

it("gives the call up when the person would rather not", async () => {
  startServer(false);
  const user = userEvent.setup();
  const created = create().catch((error: unknown) => error);
  await user.click(await screen.findByRole("button", { name: "Cancel" }));
  expect(await created).toMatchObject({ code: "fresh_sign_in_required" });
});
