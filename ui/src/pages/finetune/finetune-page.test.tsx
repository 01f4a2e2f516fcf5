// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRoute, createRouter, Outlet, RouterProvider } from "@tanstack/react-router";
import { act, cleanup, configure, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { NEW_PROJECT } from "@/forms/job-form";
import { finetuneSearch } from "@/shell/address";
import { CurrentUser } from "@/shell/session";
import { serveFrom } from "@/test-server";
import { ada } from "@/test-user";
import { FinetunePage } from "./finetune-page";

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

const project = (id: string, dataset?: string) => ({ id, name: id, trainingDataPath: dataset && `dataset://${dataset}` });
const dataset = (id: string) => ({ id, name: id, status: "failed", problem: "No", report: null });

/** The projects that the server has now, the one that was changed last first. */
let projects = [project("first")];

function show(address: string) {
  vi.stubGlobal("scrollTo", () => {});
  serveFrom(({ path }) => {
    if (path === "/api/projects") return { body: { items: projects, total: projects.length } };
    if (path.startsWith("/api/projects/")) return { body: projects.find(({ id }) => path.endsWith(id)) };
    if (path === "/api/datasets") return { body: { items: ["d1", "d2", "d3"].map(dataset), total: 3 } };
    return { body: { items: [], families: [], total: 0 } };
  });
  const root = createRootRoute();
  const app = createRoute({ getParentRoute: () => root, id: "app", component: () => <CurrentUser value={ada}><Outlet /></CurrentUser> });
  const page = createRoute({ getParentRoute: () => app, path: "/finetune", validateSearch: finetuneSearch, component: FinetunePage });
  const router = createRouter({ routeTree: root.addChildren([app.addChildren([page])]), history: createMemoryHistory({ initialEntries: [address] }) });
  render(
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
}

const choiceOf = (label: string) => screen.getByLabelText<HTMLSelectElement>(label).value;

/** Until the page shows what the server has now. */
async function fetchAgain() {
  await act(() => queryClient.refetchQueries({ queryKey: ["projects"] }));
  await act(() => new Promise((shown) => setTimeout(shown, 0)));
}

it("keeps the project that was changed last when the form opened", async () => {
  projects = [project("first")];
  show("/finetune");
  await waitFor(() => expect(choiceOf("Project")).toBe("first"));
  // Another tab changes another project.
  projects = [project("second"), project("first")];
  await fetchAgain();
  expect(choiceOf("Project")).toBe("first");
});

it("keeps the new project that somebody chose", async () => {
  projects = [project("first")];
  show("/finetune");
  await waitFor(() => expect(choiceOf("Project")).toBe("first"));
  await userEvent.selectOptions(screen.getByLabelText("Project"), "New project…");
  projects = [project("second"), project("first")];
  await fetchAgain();
  expect(choiceOf("Project")).toBe(NEW_PROJECT);
});

it("keeps the dataset that somebody chose when the project names another one", async () => {
  projects = [project("first", "d1")];
  show("/finetune?project=first");
  await waitFor(() => expect(choiceOf("Dataset")).toBe("d1"));
  await userEvent.selectOptions(screen.getByLabelText("Dataset"), "d2");
  projects = [project("first", "d3")];
  await fetchAgain();
  expect(choiceOf("Dataset")).toBe("d2");
});
