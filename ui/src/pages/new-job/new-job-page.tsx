import { useQuery } from "@tanstack/react-query";
import { Link, getRouteApi } from "@tanstack/react-router";
import { FormProvider } from "react-hook-form";
import { projectQuery } from "@/api/projects";
import type { Project } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { NEW_PROJECT, STARTING_CONFIG, jobRules, startingValues } from "@/forms/job-rules";
import { TextField } from "@/forms/text-field";
import { PageHeader } from "@/shell/page-header";
import { PagePending } from "@/shell/page-pending";
import { usePageTitle } from "@/shell/use-page-title";
import { JobKindLinks } from "./job-kind-links";
import { JsonEditor } from "./json-editor";
import { PlanCard } from "./plan-card";
import { ProjectFields } from "./project-fields";
import { ScriptButton } from "./script-button";
import { StructuredConfig } from "./structured-config";
import { type Mode, useJobForm } from "./use-job-form";
import { WhereCard } from "./where-card";

const route = getRouteApi("/app/projects/$projectId/jobs/new");

export function NewJobInProjectPage() {
  const { projectId } = route.useParams();
  const project = useQuery(projectQuery(projectId));
  return (
    <Loaded query={project} skeleton={<PagePending />}>
      {(found) => <NewJob project={found} />}
    </Loaded>
  );
}

export const NewJobPage = () => <NewJob />;

function NewJob({ project }: { project?: Project }) {
  usePageTitle("New training job");
  const { form, values, request, mode, switchTo, json, typeJson, mistake, failures, planned, missing, take, setTaken, start } = useJobForm({
    values: startingValues(project?.id ?? NEW_PROJECT),
    config: STARTING_CONFIG,
    rules: jobRules,
  });
  const other = useQuery({ ...projectQuery(values.project), enabled: !project && values.project !== NEW_PROJECT });
  const projectPath = (project ?? other.data)?.trainingDataPath ?? null;

  return (
    <FormProvider {...form}>
      <form noValidate aria-label="New training job" onSubmit={(event) => void start(event)}>
        <PageHeader title="New training job" crumbs={<Crumbs project={project} />}>
          <ScriptButton request={request} ready={missing === null && mistake === null} />
          <Button type="submit" look="primary" pending={form.formState.isSubmitting}>
            Start training
          </Button>
        </PageHeader>
        <JobKindLinks projectId={project?.id} />
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
              <CardHeader title="Job" />
              <div className="grid gap-3.5 sm:grid-cols-2">
                {!project && <ProjectFields />}
                <TextField
                  label="Job name"
                  optional
                  autoComplete="off"
                  placeholder={project?.name ?? "the project’s name"}
                  registration={form.register("name")}
                  error={form.formState.errors.name?.message}
                />
              </div>
            </Card>
            <Tabs value={mode} onValueChange={(next) => switchTo(next as Mode)}>
              <TabList aria-label="Config">
                <Tab value="form">Form</Tab>
                <Tab value="json">JSON</Tab>
              </TabList>
              <TabPanel value="form" tabIndex={-1} className="mt-2 grid gap-3.5">
                <StructuredConfig projectPath={projectPath} />
              </TabPanel>
              <TabPanel value="json" tabIndex={-1} className="mt-2">
                <JsonEditor text={json} mistake={mistake} onChange={typeJson} />
              </TabPanel>
            </Tabs>
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

function Crumbs({ project }: { project?: Project }) {
  const look = "underline-offset-3 hover:text-text hover:underline";
  if (!project) {
    return (
      <>
        <Link to="/jobs" className={look}>
          Training jobs
        </Link>{" "}
        / New job
      </>
    );
  }
  return (
    <>
      <Link to="/projects" className={look}>
        Projects
      </Link>{" "}
      /{" "}
      <Link to="/projects/$projectId" params={{ projectId: project.id }} className={`${look} text-text`}>
        {project.name}
      </Link>{" "}
      / New job
    </>
  );
}
