// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRoute, createRouter, Outlet, RouterProvider } from "@tanstack/react-router";
import { act, cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { CurrentUser } from "@/shell/session";
import { serveFrom } from "@/test-server";
import { ada } from "@/test-user";
import { NewJobPage } from "./new-job-page";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

const model = () => screen.getByLabelText<HTMLSelectElement>("Model");

it("keeps the model that somebody chose when the size of the project changes elsewhere", async () => {
  vi.stubGlobal("scrollTo", () => {});
  let preset = "tiny";
  const project = () => ({ id: "p1", name: "Poems", modelSize: 1, modelPreset: { name: preset, label: preset }, trainingDataPath: null });
  serveFrom(({ path }) => {
    if (path === "/api/projects") return { body: { items: [project()], total: 1 } };
    // What else the page asks for does not matter here.
    return path.startsWith("/api/projects/") ? { body: project() } : { status: 404, body: { code: "not_found", detail: "No" } };
  });
  const root = createRootRoute();
  const app = createRoute({ getParentRoute: () => root, id: "app", component: () => <CurrentUser value={ada}><Outlet /></CurrentUser> });
  const page = createRoute({ getParentRoute: () => app, path: "/jobs/new", component: NewJobPage });
  const router = createRouter({ routeTree: root.addChildren([app.addChildren([page])]), history: createMemoryHistory({ initialEntries: ["/jobs/new"] }) });
  render(
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
  await screen.findByRole("option", { name: "Poems" });
  await userEvent.selectOptions(screen.getByLabelText("Project"), "Poems");
  await waitFor(() => expect(model().value).toBe("tiny"));
  await userEvent.selectOptions(model(), "nano");
  preset = "small";
  await act(() => queryClient.refetchQueries({ queryKey: ["projects"] }));
  await act(() => new Promise((shown) => setTimeout(shown, 0)));
  expect(model().value).toBe("nano");
});
