// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen, waitFor } from "@testing-library/react";
import { FormProvider, useForm } from "react-hook-form";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { projectsQuery } from "@/api/projects";
import { CONFIG_GROUPS } from "@/forms/job-fields";
import { type JobFormValues, startingValues } from "@/forms/job-form";
import { serveFrom } from "@/test-server";
import { OneField } from "./config-fields";
import { JobCard } from "./job-frame";

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

function Form({ architectures = [""] }: { architectures?: string[] }) {
  const form = useForm<JobFormValues>({ defaultValues: startingValues("p1", { config: { model: { architecture: "mamba" } } }) });
  return (
    <QueryClientProvider client={queryClient}>
      <FormProvider {...form}>
        <OneField field={CONFIG_GROUPS.architecture[0]} options={architectures.map((name) => [name, name])} />
        <JobCard form={form} inProject={false} usualName="" />
      </FormProvider>
    </QueryClientProvider>
  );
}

const chosen = (label: string) => screen.getByLabelText<HTMLSelectElement>(label).selectedOptions[0]?.text;

it("shows the project of the job when the list of projects arrives late", async () => {
  vi.stubGlobal("fetch", () => new Promise(() => undefined));
  render(<Form />);
  await act(async () => {
    queryClient.setQueryData(projectsQuery({ limit: 100 }).queryKey, { items: [{ id: "p1", name: "Poems" }], total: 1 } as never);
    await new Promise((shown) => setTimeout(shown, 0));
  });
  expect(chosen("Project")).toBe("Poems");
});

it("shows the project of the job when it is too old for the list of projects", async () => {
  const sent = serveFrom(({ path }) => ({ body: path === "/api/projects/p1" ? { id: "p1", name: "Poems" } : { items: [{ id: "p2", name: "Newest" }], total: 101 } }));
  render(<Form />);
  await waitFor(() => expect(chosen("Project")).toBe("Poems"));
  expect([...screen.getByLabelText<HTMLSelectElement>("Project").options].map(({ text }) => text)).toEqual(["New project…", "Newest", "Poems"]);
  expect(sent.map(({ path }) => path)).toEqual(["/api/projects", "/api/projects/p1"]);
});

it("shows the architecture of the model when the list of plug-ins arrives late", () => {
  vi.stubGlobal("fetch", () => new Promise(() => undefined));
  const { rerender } = render(<Form />);
  rerender(<Form architectures={["", "mamba"]} />);
  expect(chosen("Architecture")).toBe("mamba");
});
