// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { serveFrom } from "@/test-server";
import { testJob } from "@/test-job";
import { PlaygroundPage } from "./playground-page";

vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), Link: "a", useNavigate: () => () => {}, getRouteApi: () => ({ useSearch: () => search }) }));
vi.mock("./chat", () => ({ Chat: () => <p>The conversation</p> }));

let search: { job?: string } = {};

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it("says why the run cannot be read, and reads it when asked again", async () => {
  search = { job: "j" };
  let readable = false;
  serveFrom(({ path }) => {
    if (path.endsWith("/j")) return readable ? { body: testJob({ status: "completed", has_model: true }) } : { status: 400, body: { code: "broken", detail: "The run cannot be read." } };
    return { body: { items: [] } };
  });
  render(
    <QueryClientProvider client={queryClient}>
      <PlaygroundPage />
    </QueryClientProvider>,
  );
  expect((await screen.findByRole("alert")).textContent).toContain("The run cannot be read.");
  readable = true;
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(await screen.findByText("The conversation")).toBeDefined();
});

const show = (jobs: object[]) => {
  search = {};
  serveFrom(({ path }) => ({ body: { items: path === "/api/jobs" ? jobs : [] } }));
  render(
    <QueryClientProvider client={queryClient}>
      <PlaygroundPage />
    </QueryClientProvider>,
  );
};

it("offers the next step where there is nothing to chat with", async () => {
  show([]);
  expect(await screen.findByText("No model to chat with yet.")).toBeDefined();
  expect(screen.getByText("Add a model").getAttribute("to")).toBe("/models");
  expect(screen.queryByLabelText("Run or model")).toBeNull();
});

it("lists the trainings that ran, and no scripts", async () => {
  show([testJob({ id: "t", name: "Herons", attempt: 1 }), testJob({ id: "s", name: "train.py", kind: "script", attempt: 1 })]);
  expect(await screen.findByRole("option", { name: "Herons" })).toBeDefined();
  expect(screen.queryByRole("option", { name: "train.py" })).toBeNull();
});
