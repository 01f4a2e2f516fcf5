// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { serveFrom } from "@/test-server";
import { AddModelButton } from "./add-model-dialog";

// What leads to other pages does not matter here.
vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), Link: "a" }));

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("keeps what was typed while another source is looked at", async () => {
  serveFrom(() => ({ body: { present: false, data_roots: [] } }));
  render(
    <QueryClientProvider client={queryClient}>
      <AddModelButton />
    </QueryClientProvider>,
  );
  await userEvent.click(screen.getByRole("button", { name: "Add a model" }));
  await userEvent.type(screen.getByLabelText("Model ID"), "org/name");
  await userEvent.click(screen.getByRole("tab", { name: "Server folder" }));
  await userEvent.click(screen.getByRole("tab", { name: "Hugging Face" }));
  expect(screen.getByLabelText<HTMLInputElement>("Model ID").value).toBe("org/name");
});
