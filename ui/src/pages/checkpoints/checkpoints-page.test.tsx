// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { serveFrom } from "@/test-server";
import { CheckpointsPage } from "./checkpoints-page";

const asked = vi.hoisted(() => ({ search: { page: 2, best: true }, navigate: vi.fn<(to: { search: (kept: object) => object }) => void>() }));
vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), Link: "a", useNavigate: () => asked.navigate, getRouteApi: () => ({ useSearch: () => asked.search }) }));

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("leads from an empty page of the list to its first page, with the same filter", async () => {
  serveFrom(({ path }) => ({ body: { items: [], total: path.endsWith("/checkpoints") ? 25 : 0 } }));
  render(
    <QueryClientProvider client={queryClient}>
      <CheckpointsPage />
    </QueryClientProvider>,
  );
  await userEvent.click(await screen.findByRole("button", { name: "Show the first page" }));
  expect(asked.navigate.mock.lastCall?.[0].search(asked.search)).toEqual({ best: true, page: undefined });
});
