// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen } from "@testing-library/react";
import { FormProvider, useForm } from "react-hook-form";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { datasetsQuery } from "@/api/datasets";
import { modelsQuery } from "@/api/models";
import { DataChoice, LISTED, ModelChoice } from "./choices";

// What leads to other pages does not matter here.
vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), Link: "a" }));

afterEach(() => {
  cleanup();
  queryClient.clear();
});

function Form() {
  const form = useForm({ defaultValues: { model_id: "m1", dataset_id: "d1" } });
  return (
    <QueryClientProvider client={queryClient}>
      <FormProvider {...form}>
        <ModelChoice />
        <DataChoice />
      </FormProvider>
    </QueryClientProvider>
  );
}

it.each([
  ["Model", "tiny"],
  ["Dataset", "pairs.jsonl"],
])("a list that arrives late shows what was chosen and leaves the focus where it is: %s", async (label, chosen) => {
  vi.stubGlobal("fetch", () => new Promise(() => undefined));
  render(<Form />);
  const list = screen.getByLabelText<HTMLSelectElement>(label);
  list.focus();
  await act(async () => {
    queryClient.setQueryData(modelsQuery.queryKey, { items: [{ id: "m1", name: "tiny", status: "ready", size: 1 }], total: 1 } as never);
    queryClient.setQueryData(datasetsQuery(LISTED).queryKey, { items: [{ id: "d1", name: "pairs.jsonl", status: "failed", problem: "No" }], total: 1 } as never);
    await new Promise((done) => setTimeout(done, 0));
  });
  expect(list.selectedOptions[0]?.text).toContain(chosen);
  expect(document.activeElement).toBe(list);
});
