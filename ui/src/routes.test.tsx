// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, RouterProvider } from "@tanstack/react-router";
import { cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { authStateQuery } from "./api/auth";
import { queryClient } from "./api/client";
import { router } from "./routes";
import { serveFrom } from "./test-server";
import { ada } from "./test-user";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 20_000 });

beforeEach(() => {
  vi.stubGlobal("scrollTo", () => {});
  serveFrom(() => {
    throw new TypeError("Failed to fetch");
  });
});

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

const notices = () => screen.queryAllByText("The server cannot be reached.");

it("says once that the server is out of reach: beside the sidebar, which is as high as the window, or at the top of a page without one", async () => {
  queryClient.setQueryData(authStateQuery.queryKey, { user: ada, folder: null } as never);
  router.update({ ...router.options, history: createMemoryHistory({ initialEntries: ["/dashboard"] }) });
  render(
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
  const content = await screen.findByRole("main");
  await waitFor(() => expect(notices()).toHaveLength(1));
  expect(content.parentElement?.contains(notices()[0] ?? null)).toBe(true);
  expect(content.parentElement?.querySelector("aside")).toBeNull();
  await router.navigate({ to: "/auth/forgot" });
  await waitFor(() => expect(screen.queryByRole("link", { name: "Providers" })).toBeNull());
  await waitFor(() => expect(notices()).toHaveLength(1));
});
