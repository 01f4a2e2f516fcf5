import { useQuery } from "@tanstack/react-query";
import { Link, getRouteApi } from "@tanstack/react-router";
import { useEffect } from "react";
import { FormProvider } from "react-hook-form";
import { datasetsQuery } from "@/api/datasets";
import { modelsQuery } from "@/api/models";
import { projectsQuery } from "@/api/projects";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Notice } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { FINETUNE_CONFIG, USUAL_LENGTH, finetuneRules, usualName, whatIsMissing } from "@/forms/finetune-rules";
import { type JobFormValues, NEW_PROJECT, startingValues } from "@/forms/job-rules";
import { TextField } from "@/forms/text-field";
import { JobKindLinks } from "@/pages/new-job/job-kind-links";
import { JsonEditor } from "@/pages/new-job/json-editor";
import { PlanCard } from "@/pages/new-job/plan-card";
import { ProjectFields } from "@/pages/new-job/project-fields";
import { ScriptButton } from "@/pages/new-job/script-button";
import { type Mode, useJobForm } from "@/pages/new-job/use-job-form";
import { WhereCard } from "@/pages/new-job/where-card";
import { PageHeader } from "@/shell/page-header";
import { usePageTitle } from "@/shell/use-page-title";
import { DataChoice, LISTED } from "./data-choice";
import { FinetuneFields } from "./finetune-fields";
import { ModelChoice } from "./model-choice";
import { RateFinder } from "./rate-finder";

const route = getRouteApi("/app/finetune");

export function FinetunePage() {
  usePageTitle("Fine-tune");
  const search = route.useSearch();
  const models = useQuery(modelsQuery);
  const datasets = useQuery(datasetsQuery(LISTED));
  const find = (values: Pick<JobFormValues, "modelId" | "datasetId">) => ({
    model: models.data?.items.find(({ id }) => id === values.modelId),
    dataset: datasets.data?.items.find(({ id }) => id === values.datasetId),
  });
  const { form, values, request, mode, switchTo, json, typeJson, mistake, failures, planned, missing, take, setTaken, start, bodyOf } = useJobForm({
    values: startingValues(search.project ?? NEW_PROJECT, { config: FINETUNE_CONFIG, projectName: "Fine-tuning", datasetId: search.dataset, modelId: search.model }),
    config: FINETUNE_CONFIG,
    rules: finetuneRules,
    missing: (current) => {
      const { model, dataset } = find(current);
      return whatIsMissing(current, model, dataset);
    },
    usualName: (current) => {
      const { model, dataset } = find(current);
      return usualName(model, dataset);
    },
  });
  const { model, dataset } = find(values);
  const { setValue, getFieldState, resetField } = form;

  // Values that were chosen before the lists were there.
  useEffect(() => {
    if (search.model) resetField("modelId", { defaultValue: search.model });
    if (search.dataset) resetField("datasetId", { defaultValue: search.dataset });
  }, [search.model, search.dataset, resetField]);

  useOwnProject(search.project === undefined, (id) => !getFieldState("project").isDirty && setValue("project", id));

  // A small model has a short context; the usual length would be refused.
  const context = model?.check?.contextLength ?? null;
  useEffect(() => {
    const path = "config.model.context_length" as keyof JobFormValues;
    if (context !== null && !getFieldState(path).isDirty) setValue(path, String(Math.min(USUAL_LENGTH, context)));
  }, [context, getFieldState, setValue]);

  const complete = missing === null && mistake === null;
  return (
    <FormProvider {...form}>
      <form noValidate aria-label="Fine-tune" onSubmit={(event) => void start(event)}>
        <PageHeader
          title="Fine-tune"
          crumbs={
            <>
              <Link to="/jobs" className="underline-offset-3 hover:text-text hover:underline">
                Training jobs
              </Link>{" "}
              / New job
            </>
          }
        >
          <ScriptButton request={request} ready={complete} />
          <Button type="submit" look="primary" pending={form.formState.isSubmitting}>
            Start training
          </Button>
        </PageHeader>
        <JobKindLinks projectId={search.project} />
        {failures.length > 0 && (
          <Notice tone="bad" role="alert" className="mb-3.5 grid gap-1 break-words">
            {failures.map((failure) => (
              <p key={failure}>{failure}</p>
            ))}
          </Notice>
        )}
        <div className="grid items-start gap-4.5 lg:grid-cols-[minmax(0,1fr)_minmax(0,24rem)]">
          <div className="grid min-w-0 gap-3.5">
            <Card>
              <CardHeader title="Model and data" />
              <div className="grid gap-3.5 sm:grid-cols-2">
                <ModelChoice />
                <DataChoice />
              </div>
            </Card>
            <Tabs value={mode} onValueChange={(next) => switchTo(next as Mode)}>
              <TabList aria-label="Config">
                <Tab value="form">Form</Tab>
                <Tab value="json">JSON</Tab>
              </TabList>
              <TabPanel value="form" tabIndex={-1} className="mt-2">
                <FinetuneFields request={request} complete={complete} finder={<RateFinder ready={complete} bodyOf={bodyOf} />} />
              </TabPanel>
              <TabPanel value="json" tabIndex={-1} className="mt-2">
                <JsonEditor text={json} mistake={mistake} onChange={typeJson} />
              </TabPanel>
            </Tabs>
            <Card>
              <CardHeader title="Job" />
              <div className="grid gap-3.5 sm:grid-cols-2">
                <ProjectFields />
                <TextField
                  label="Job name"
                  optional
                  autoComplete="off"
                  placeholder={usualName(model, dataset) ?? "model on data"}
                  registration={form.register("name")}
                  error={form.formState.errors.name?.message}
                />
              </div>
            </Card>
            <WhereCard answer={planned.answer.data} onTake={setTaken} />
          </div>
          <PlanCard planned={planned} missing={missing} onTake={take} />
          {/* On a phone the button at the top has long scrolled away when the form is filled in. */}
          <Button type="submit" look="primary" size="large" pending={form.formState.isSubmitting} className="sm:hidden">
            Start training
          </Button>
        </div>
      </form>
    </FormProvider>
  );
}

/** The project that was changed last is where most people go on. */
function useOwnProject(wanted: boolean, choose: (id: string) => void) {
  const projects = useQuery({ ...projectsQuery({ limit: 100 }), enabled: wanted });
  const newest = projects.data?.items[0]?.id;
  useEffect(() => {
    if (wanted && newest) choose(newest);
    // Only when the list arrives: later it is the person's choice.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [wanted, newest]);
}
