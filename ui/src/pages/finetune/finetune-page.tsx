import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { datasetsQuery } from "@/api/datasets";
import { modelsQuery } from "@/api/models";
import { projectQuery, projectsQuery } from "@/api/projects";
import type { Job, Project } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { datasetIdOf, type JobFormValues, likeJob, NEW_PROJECT, startingValues } from "@/forms/job-form";
import { ConfigTabs, JobAccordion, JobFrame } from "@/pages/new-job/job-frame";
import { LikeAnother, NewJobCrumbs } from "@/pages/new-job/new-job-header";
import { useJobForm } from "@/pages/new-job/use-job-form";
import { WhereCard } from "@/pages/new-job/where-card";
import { PagePending } from "@/shell/page";
import { DataChoice, LISTED, ModelChoice, MoreData } from "./choices";
import { MethodFields, RateFinder, SettingsAccordions } from "./finetune-fields";
import { FINETUNE_CONFIG, finetuneRules, FROM_HUB, usualName, whatIsMissing } from "./finetune-rules";
import { PreflightCard } from "./preflight-card";

const route = getRouteApi("/app/finetune");

export function FinetunePage() {
  const { like, project: projectId } = route.useSearch();
  const project = useQuery({ ...projectQuery(projectId ?? ""), enabled: projectId !== undefined });
  if (project.isLoading) return <PagePending />;
  return <LikeAnother id={like}>{(job) => <Finetune like={job} project={project.data} />}</LikeAnother>;
}

function Finetune({ like, project }: { like?: Job; project?: Project }) {
  const fromAddress = route.useSearch();
  const start = like ? likeJob(like) : { config: FINETUNE_CONFIG };
  const search = { project: like?.project_id ?? fromAddress.project, dataset: start.dataset_id ?? fromAddress.dataset, model: start.model_id ?? fromAddress.model };
  const models = useQuery(modelsQuery);
  const datasets = useQuery(datasetsQuery(LISTED));
  const find = (values: Pick<JobFormValues, "model_id" | "dataset_id" | "mix" | "eval_dataset_id">) => {
    const known = datasets.data?.items ?? [];
    const model = models.data?.items.find(({ id }) => id === values.model_id);
    const dataset = known.find(({ id }) => id === values.dataset_id);
    const modelIsGone = !model && models.isSuccess && !models.isFetching && values.model_id !== "" && !values.model_id.startsWith(FROM_HUB);
    // A dataset may also be older than those that are listed.
    const datasetIsGone = !dataset && datasets.isSuccess && !datasets.isFetching && known.length < LISTED.limit && values.dataset_id !== "";
    return {
      model,
      dataset,
      gone: modelIsGone ? ("model" as const) : datasetIsGone ? ("dataset" as const) : undefined,
      mixed: known.filter(({ id }) => values.mix.some((each) => each.dataset_id === id)),
      held: known.find(({ id }) => id === values.eval_dataset_id),
    };
  };
  const job = useJobForm({
    values: startingValues(search.project ?? NEW_PROJECT, { ...start, projectName: "Fine-tuning", dataset_id: search.dataset ?? datasetIdOf(project?.trainingDataPath) ?? undefined, model_id: search.model }),
    config: start.config,
    rules: finetuneRules,
    missing: (current) => whatIsMissing(current, find(current)),
    usualName: (current) => {
      const { model, dataset } = find(current);
      return usualName(model, dataset);
    },
  });
  const { model, dataset } = find(job.values);
  const { setValue, getFieldState } = job.form;

  useOwnProject(search.project === undefined && job.draft === null, (id) => !getFieldState("project").isDirty && !getFieldState("projectName").isDirty && setValue("project", id));

  const complete = job.missing === null && job.mistake === null;
  return (
    <JobFrame
      title="Fine-tune"
      crumbs={<NewJobCrumbs />}
      projectId={search.project}
      job={job}
      byId
      lead={
        <Card>
          <CardHeader title="Model and data" />
          <div className="mb-3 grid items-start gap-3.5 sm:grid-cols-2">
            <ModelChoice />
            <DataChoice />
          </div>
          <MoreData />
        </Card>
      }
      aside={<PreflightCard request={job.request} complete={complete} missing={job.missing} />}
    >
      <ConfigTabs job={job} title="Method">
        <MethodFields request={job.request} complete={complete} finder={<RateFinder ready={complete} bodyOf={job.bodyOf} />} />
      </ConfigTabs>
      <WhereCard answer={job.planned.answer.data} onTake={job.setRental} />
      <Card>
        <CardHeader title="Settings" />
        <JobAccordion form={job.form} usualName={usualName(model, dataset) ?? "names of model and dataset"} />
        {job.mode === "form" && <SettingsAccordions />}
      </Card>
    </JobFrame>
  );
}

/** The project that was changed last is where most people go on. */
function useOwnProject(wanted: boolean, choose: (id: string) => void) {
  const projects = useQuery({ ...projectsQuery({ limit: 100 }), enabled: wanted });
  const isChosen = useRef(false);
  const newest = projects.isFetching ? undefined : projects.data?.items[0]?.id;
  useEffect(() => {
    // Once: the list changes when another tab changes a project, and what the form shows is then the person's choice.
    if (!wanted || isChosen.current || newest === undefined) return;
    isChosen.current = true;
    choose(newest);
    // oxlint-disable-next-line react/exhaustive-deps
  }, [wanted, newest]);
}
