// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { queryClient } from "@/api/client";
import type { JobStatus } from "@/api/types";
import { CurveStore } from "@/charts/curve-store";
import { testJob } from "@/test-job";
import { serveFrom } from "@/test-server";
import { ResultCard } from "./result-cards";

afterEach(() => {
  cleanup();
  queryClient.clear();
});

it.each<[JobStatus, string, string]>([
  ["running", "Result so far", "Latest eval loss"],
  ["completed", "Result", "Final eval loss"],
])("names the values of a run that is %s as what they are", (status, title, name) => {
  serveFrom(() => ({ body: { items: [] } }));
  const job = testJob({ status, summary: { values: { "eval/loss": { step: 10, value: 1.5 } } } });
  render(
    <QueryClientProvider client={queryClient}>
      <ResultCard job={job} store={new CurveStore()} />
    </QueryClientProvider>,
  );
  expect(screen.getByRole("heading", { name: title })).toBeDefined();
  expect(screen.getByText(name).nextElementSibling?.textContent).toBe("1.5");
});
