// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import type { Model } from "@/api/types";
import { serveFrom } from "@/test-server";
import { ModelsPage } from "./models-page";

// What leads to other pages does not matter here.
vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), Link: "a" }));

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
});

const listed = { id: "org/small", parameters: 1e9, licence: "mit", context_length: 2048, chat: true, gated: false, unsloth_id: null, memory: {} };
const failed = { id: "1", name: "org/large", repository: "org/large", revision: null, source: "hub", status: "failed", size: 0, received: 0, progress: null, problem: "The hub did not answer.", check: null } as unknown as Model;

function show(models: Model[]) {
  serveFrom(({ path }) => ({ body: path.endsWith("/catalogue") ? { setting: "one row", families: [{ name: "Small", models: [listed] }] } : { items: path.endsWith("/models") ? models : [] } }));
  render(
    <QueryClientProvider client={queryClient}>
      <ModelsPage />
    </QueryClientProvider>,
  );
}

it("calls it a download wherever a model comes from the catalogue or the hub", async () => {
  show([]);
  expect((await screen.findByRole("button", { name: "Download org/small" })).textContent).toBe("Download");
  expect(screen.getByText(/^Download a model from the catalogue below/)).toBeDefined();
  await userEvent.type(screen.getByRole("searchbox"), "nothing like it");
  expect(await screen.findByText(/You can also download any other Hugging Face model/)).toBeDefined();
  cleanup();
  queryClient.clear();
  show([failed]);
  expect((await screen.findByRole("button", { name: "Download org/large again" })).textContent).toBe("Download again");
});
