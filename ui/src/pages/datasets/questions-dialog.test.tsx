// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import type { Dataset } from "@/api/types";
import { serveFrom } from "@/test-server";
import { QuestionsButton } from "./questions-dialog";

vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), Link: "a", useNavigate: () => () => {} }));

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("asks for a model anew when another place writes the questions", async () => {
  const user = userEvent.setup();
  const sent = serveFrom(({ path }) => (path.endsWith("/playground") ? { body: { items: [{ job: { id: "served", name: "My model" } }] } } : path.endsWith("/secrets") ? { body: { items: [] } } : { status: 400, body: { code: "none", detail: "No estimate." } }));
  render(
    <QueryClientProvider client={queryClient}>
      <QuestionsButton dataset={{ id: "d" } as Dataset} passages={3} />
    </QueryClientProvider>,
  );
  await user.click(screen.getByRole("button", { name: "Write questions" }));
  await user.type(screen.getByLabelText("Model"), "gpt-large");
  await user.selectOptions(screen.getByLabelText("Written by"), "playground");
  await screen.findByRole("option", { name: "My model" });
  await user.click(screen.getByRole("button", { name: "Start writing" }));
  expect(await screen.findByText("Choose or enter a model.")).toBeDefined();
  expect(sent.filter(({ method, path }) => method === "POST" && path.endsWith("/questions"))).toEqual([]);
  await user.selectOptions(screen.getByLabelText("Model"), "served");
  await user.selectOptions(screen.getByLabelText("Written by"), "endpoint");
  await waitFor(() => expect(screen.getByLabelText<HTMLInputElement>("Model").value).toBe(""));
});
