// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen } from "@testing-library/react";
import { FormProvider, useForm } from "react-hook-form";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { projectsQuery } from "@/api/projects";
import { type JobFormValues, startingValues } from "@/forms/job-form";
import { JobCard } from "./job-frame";

afterEach(() => {
  cleanup();
  queryClient.clear();
  vi.unstubAllGlobals();
});

function Form() {
  const form = useForm<JobFormValues>({ defaultValues: startingValues("p1") });
  return (
    <QueryClientProvider client={queryClient}>
      <FormProvider {...form}>
        <JobCard form={form} inProject={false} usualName="" />
      </FormProvider>
    </QueryClientProvider>
  );
}

it("shows the project of the job when the list of projects arrives late", async () => {
  vi.stubGlobal("fetch", () => new Promise(() => undefined));
  render(<Form />);
  await act(async () => {
    queryClient.setQueryData(projectsQuery({ limit: 100 }).queryKey, { items: [{ id: "p1", name: "Poems" }], total: 1 } as never);
    await new Promise((shown) => setTimeout(shown, 0));
  });
  expect(screen.getByLabelText<HTMLSelectElement>("Project").selectedOptions[0]?.text).toBe("Poems");
});
