// @vitest-environment jsdom
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, render, screen } from "@testing-library/react";
import type { ReactNode } from "react";
import { FormProvider, useForm, useFormContext } from "react-hook-form";
import { afterEach, expect, it, vi } from "vitest";
import { queryClient } from "@/api/client";
import { CurveStore } from "@/charts/curve-store";
import { type JobFormValues, startingValues } from "@/forms/job-form";
import { DatasetNote } from "@/forms/training-data-field";
import { DashboardPage } from "@/pages/dashboard/dashboard-page";
import { DataChoice, ModelChoice } from "@/pages/finetune/choices";
import { ImprovementCard } from "@/pages/job/improvement-card";
import { LineageCard } from "@/pages/job/lineage-card";
import { MachineChain } from "@/pages/job/machine-chain";
import { StoredArtifactsCard } from "@/pages/job/stored-artifacts-card";
import { JobCard } from "@/pages/new-job/job-frame";
import { ModelChoice as PlaygroundChoice, useChoices } from "@/pages/playground/playground-page";
import { SharedPage } from "@/pages/shared/shared-page";
import { CurrentUser } from "@/shell/session";
import { testJob } from "@/test-job";
import { serveFrom } from "@/test-server";
import { ada } from "@/test-user";

// What leads to other pages, and what needs a canvas, does not matter here.
vi.mock("@tanstack/react-router", async (original) => ({ ...(await original<object>()), Link: "a", useNavigate: () => () => {} }));
vi.mock("@/charts/job-charts", () => ({ JobCharts: ({ waiting }: { waiting: string }) => waiting }));
vi.mock("@/shell/address", async (original) => ({ ...(await original<object>()), useFragment: () => "token" }));

// Waiting ends with what is waited for; this only bounds it on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(() => {
  cleanup();
  queryClient.clear();
});

const job = testJob({ status: "completed", branch: { job_id: "parent", step: 5 } as never, summary: { values: { "eval/loss": 1 } } });

function Form({ children }: { children: ReactNode }) {
  const form = useForm({ defaultValues: startingValues("p") });
  return <FormProvider {...form}>{children}</FormProvider>;
}

const Job = () => <JobCard form={useFormContext<JobFormValues>()} inProject={false} usualName="" />;

const SENTENCE = "The store cannot be read.";

function show(part: ReactNode, broken: string) {
  serveFrom(({ path }) => {
    if (path === broken) return { status: 400, body: { code: "broken", detail: SENTENCE } };
    return { body: path === "/api/shared/job" ? job : { items: [], families: [], total: 0, totals: {} } };
  });
  render(
    <QueryClientProvider client={queryClient}>
      <CurrentUser value={ada}>{part}</CurrentUser>
    </QueryClientProvider>,
  );
}

const Playground = () => <PlaygroundChoice choices={useChoices({})} chosen={{}} onChoose={() => {}} />;

it.each<[string, ReactNode, string]>([
  ["the models of the fine-tune form", <Form key=""><ModelChoice /></Form>, "/api/models"],
  ["the catalogue of the fine-tune form", <Form key=""><ModelChoice /></Form>, "/api/catalogue"],
  ["the datasets of the fine-tune form", <Form key=""><DataChoice /></Form>, "/api/datasets"],
  ["the projects of a new job", <Form key=""><Job /></Form>, "/api/projects"],
  ["the runs of the playground", <Playground key="" />, "/api/jobs"],
  ["the dataset of a project", <DatasetNote key="" id="d" />, "/api/datasets/d"],
  ["the jobs of the dashboard", <DashboardPage key="" />, "/api/jobs"],
  ["what improved", <ImprovementCard key="" job={job} store={new CurveStore()} />, "/api/jobs/j/improvement"],
  ["the machines of a job", <MachineChain key="" job={job} />, "/api/rentals"],
  ["the stored files of a job", <StoredArtifactsCard key="" job={job} />, "/api/jobs/j/stored-artifacts"],
  ["the curves of a shared run", <SharedPage key="" />, "/api/shared/metrics"],
])("an empty area says why it is empty: %s", async (_, part, broken) => {
  show(part, broken);
  expect(await screen.findByText(SENTENCE)).toBeDefined();
});

it("calls a run deleted only when the server says so", async () => {
  show(<LineageCard job={job} />, "/api/jobs/parent");
  expect(await screen.findByText("Another run")).toBeDefined();
});
