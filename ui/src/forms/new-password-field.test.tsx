// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useForm, useWatch } from "react-hook-form";
import { afterEach, expect, it, vi } from "vitest";
import { serveFrom } from "@/test-server";
import { NewPasswordField } from "./new-password-field";

function Form() {
  const form = useForm({ defaultValues: { password: "" } });
  return (
    <NewPasswordField
      label="Password"
      typed={useWatch({ control: form.control, name: "password" })}
      person={{ email: "ada@example.org", name: "Ada" }}
      registration={form.register("password")}
    />
  );
}

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

it("shows the server's advice, asked once for what was typed, with the person's name and address", async () => {
  const sent = serveFrom(() => ({ body: { score: 1, advice: "This password contains your name." } }));
  render(<Form />);
  await userEvent.type(screen.getByLabelText("Password"), "ada1815ada");
  expect(await screen.findByText(/contains your name/)).toBeDefined();
  expect(screen.getByText("Weak.")).toBeDefined();
  expect(sent.map(({ body }) => body)).toEqual([{ password: "ada1815ada", email: "ada@example.org", name: "Ada" }]);
});

it("says nothing when the server does not answer", async () => {
  const sent = serveFrom(() => ({ status: 429, body: { code: "too_many_requests", detail: "Too many attempts." } }));
  render(<Form />);
  await userEvent.type(screen.getByLabelText("Password"), "a walk");
  await vi.waitFor(() => expect(sent).toHaveLength(1));
  expect(screen.getByRole("status").textContent).toBe("");
});
