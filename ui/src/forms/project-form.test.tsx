// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import type { Project } from "@/api/types";
import { serveFrom } from "@/test-server";
import { ProjectForm } from "./project-form";

const project: Project = {
  id: "1",
  userId: "2",
  name: "Contracts",
  description: null,
  modelArchitecture: "custom",
  modelSize: 14.8,
  trainingDataPath: "s3://bucket/x",
  modelPreset: { name: "14.8b", label: "14.8B · 49 layers, 5,120 wide" },
  createdAt: "2026-11-15T00:00:00Z",
  updatedAt: "2026-11-15T00:00:00Z",
};

const info = { version: "1", signup: "closed", uploads_folder: "/srv/uploads", data_roots: ["/data"] };

function show(given: { project?: Project; onSaved?: (project: Project) => void } = {}) {
  render(
    <QueryClientProvider client={queryClient}>
      <ProjectForm project={given.project} onSaved={given.onSaved ?? (() => {})} onCancel={() => {}} />
    </QueryClientProvider>,
  );
  return userEvent.setup();
}

const field = (name: string | RegExp) => screen.getByRole("textbox", { name }) as HTMLInputElement;

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

it("sends nothing that breaks a rule, and moves the focus to the first mistake", async () => {
  const sent = serveFrom(() => ({ body: info }));
  const user = show();
  await user.click(screen.getByRole("button", { name: "Create project" }));
  expect(await screen.findByText("Enter a project name.")).toBeDefined();
  expect(screen.getByText("Enter the size in billions of parameters.")).toBeDefined();
  expect(document.activeElement).toBe(field("Project name"));
  expect(field("Project name").getAttribute("aria-invalid")).toBe("true");
  expect(sent.filter((request) => request.method === "POST")).toHaveLength(0);
});

it("creates a project and hands it on", async () => {
  const sent = serveFrom(({ method }) => (method === "POST" ? { status: 201, body: project } : { body: info }));
  const onSaved = vi.fn();
  const user = show({ onSaved });
  await user.type(field("Project name"), " Contracts ");
  await user.type(field(/Model size/), "14.8");
  await user.selectOptions(screen.getByRole("combobox", { name: "Model architecture" }), "custom");
  await user.click(screen.getByRole("button", { name: "Create project" }));
  await vi.waitFor(() => expect(onSaved).toHaveBeenCalledWith(project));
  expect(sent.find((request) => request.method === "POST")?.body).toEqual({
    name: "Contracts",
    description: null,
    modelArchitecture: "custom",
    modelSize: 14.8,
    trainingDataPath: null,
  });
});

it("shows the server's objection at its field and keeps what was typed", async () => {
  const objection = { field: "trainingDataPath", message: "This path is outside the allowed folders." };
  serveFrom(({ method }) =>
    method === "PUT" ? { status: 422, body: { code: "invalid_input", detail: "…", errors: [objection] } } : { body: info },
  );
  const user = show({ project });
  await user.clear(field(/Training data/));
  await user.type(field(/Training data/), "/etc");
  await user.click(screen.getByRole("button", { name: "Save changes" }));
  expect(await screen.findByText(objection.message)).toBeDefined();
  expect(document.activeElement).toBe(field(/Training data/));
  expect(field(/Training data/).value).toBe("/etc");
});

it("says which folders of the server may be used", async () => {
  serveFrom(() => ({ body: info }));
  show();
  expect(await screen.findByText("/srv/uploads")).toBeDefined();
  expect(screen.getByText("/data")).toBeDefined();
});
