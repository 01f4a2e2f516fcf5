/** The frame of the forms that start a training job: project, config as form or JSON, plan, script. */
import { useQuery } from "@tanstack/react-query";
import { Download, FileCode } from "lucide-react";
import { type ComponentProps, type ReactNode, useState } from "react";
import { FormProvider, useFormContext, useWatch } from "react-hook-form";
import { planScriptQuery } from "@/api/jobs";
import { projectsQuery } from "@/api/projects";
import type { PlanRequest } from "@/api/types";
import { Button, CopyButton } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Dialog } from "@/components/dialog";
import { Textarea } from "@/components/input";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { FailureNotice } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { Field, SelectField, TextField } from "@/forms/field";
import { type JobFormValues, NEW_PROJECT } from "@/forms/job-form";
import { PageHeader, usePageTitle } from "@/shell/page";
import { ConfigDefaults, useFieldError } from "./config-fields";
import { JobKindLinks } from "./new-job-header";
import { PlanCard } from "./plan-card";
import type { Mode, useJobForm } from "./use-job-form";
import { WhereCard } from "./where-card";

type JobForm = ReturnType<typeof useJobForm>;

type JobFrameProps = {
  title: string;
  crumbs: ReactNode;
  projectId: string | undefined;
  job: JobForm;
  /** Whether the model is taken by its id, not described by the config. */
  byId?: boolean;
  children: ReactNode;
};

/** What every form for a training job has around its own fields: the plan next to them, and a start button above and below. */
export function JobFrame({ title, crumbs, projectId, job, byId = false, children }: JobFrameProps) {
  usePageTitle(title);
  const { form, request, mistake, missing, failures, planned, take, setRental, start } = job;
  const answered = missing === null ? planned.answer.data?.defaults : null;
  return (
    <FormProvider {...form}>
      <form noValidate aria-label={title} onSubmit={(event) => void start(event)}>
        <PageHeader title={title} crumbs={crumbs}>
          <ScriptButton request={request} ready={missing === null && mistake === null} />
          <StartButton pending={form.formState.isSubmitting} />
        </PageHeader>
        <JobKindLinks projectId={projectId} />
        <FailureNotice failures={failures} />
        <div className="grid items-start gap-4.5 lg:grid-cols-[minmax(0,1fr)_minmax(0,24rem)]">
          <div className="grid min-w-0 gap-3.5">
            <ConfigDefaults value={{ planned: answered ?? null, behind: planned.behind, byId }}>{children}</ConfigDefaults>
            <WhereCard answer={planned.answer.data} onTake={setRental} />
          </div>
          <PlanCard planned={planned} missing={missing} onTake={take} />
          {/* The button at the top has long scrolled away when the form is filled in. */}
          <StartButton size="large" pending={form.formState.isSubmitting} className="sm:justify-self-end lg:col-start-1" />
        </div>
      </form>
    </FormProvider>
  );
}

function StartButton(props: ComponentProps<typeof Button>) {
  return (
    <Button type="submit" variant="primary" {...props}>
      Start training
    </Button>
  );
}

/** The config as a form or as JSON. */
export function ConfigTabs({ job: { mode, switchTo, json, mistake, typeJson }, children }: { job: JobForm; children: ReactNode }) {
  return (
    <Tabs value={mode} onValueChange={(next) => switchTo(next as Mode)}>
      <TabList aria-label="Config">
        <Tab value="form">Form</Tab>
        <Tab value="json">JSON</Tab>
      </TabList>
      <TabPanel value="form" tabIndex={-1} className="mt-2 grid gap-3.5">
        {children}
      </TabPanel>
      <TabPanel value="json" tabIndex={-1} className="mt-2">
        <JsonEditor text={json} mistake={mistake} onChange={typeJson} />
      </TabPanel>
    </Tabs>
  );
}

type JobCardProps = { form: JobForm["form"]; inProject: boolean; usualName: string };

/** What the job is called, and whose it is. */
export function JobCard({ form, inProject, usualName }: JobCardProps) {
  return (
    <Card>
      <CardHeader title="Job" />
      <div className="grid gap-3.5 sm:grid-cols-2">
        {!inProject && <ProjectFields />}
        <TextField label="Job name" optional autoComplete="off" placeholder={usualName} registration={form.register("name")} error={form.formState.errors.name?.message} />
      </div>
    </Card>
  );
}

/** The project a job belongs to: one that exists, or one that is created together with the job. */
function ProjectFields() {
  const projects = useQuery(projectsQuery({ limit: 100 }));
  const { register } = useFormContext<JobFormValues>();
  const project = useWatch<JobFormValues, "project">({ name: "project" });
  const error = useFieldError();
  const options = [[NEW_PROJECT, "New project…"] as const, ...(projects.data?.items ?? []).map(({ id, name }) => [id, name] as const)];
  return (
    <>
      <SelectField label="Project" options={options} registration={register("project")} error={error("project")} />
      {project === NEW_PROJECT && (
        <TextField label="New project name" autoComplete="off" registration={register("projectName")} error={error("projectName")} />
      )}
    </>
  );
}

type JsonEditorProps = { text: string; mistake: string | null; onChange: (text: string) => void };

/** The config as JSON: everything the form has, and everything it has not. */
function JsonEditor({ text, mistake, onChange }: JsonEditorProps) {
  return (
    <Card>
      <CardHeader title="Config as JSON" note="fields you leave out get recommended values" />
      <Field label="Training config" error={mistake ?? undefined} help="Example fields: max_steps, seed, model.layers, optimizer.beta2, eval.every_steps.">
        {(control) => (
          <Textarea
            {...control}
            value={text}
            rows={18}
            spellCheck={false}
            autoComplete="off"
            onChange={(event) => onChange(event.target.value)}
            className="font-mono text-xs leading-[1.65] max-sm:text-[16px]"
          />
        )}
      </Field>
    </Card>
  );
}

/** The script of a job that is not started yet: to read, to copy, to run by hand. */
function ScriptButton({ request, ready }: { request: PlanRequest; ready: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button disabled={!ready} onClick={() => setOpen(true)}>
        <FileCode aria-hidden />
        View train.py
      </Button>
      <Dialog open={open} onOpenChange={setOpen} title="Training script" description="The job runs train.py with config.json in the same folder. If you run train.py yourself, you get the same result." className="max-w-3xl">
        <Files request={request} />
      </Dialog>
    </>
  );
}

function Files({ request }: { request: PlanRequest }) {
  const script = useQuery(planScriptQuery(request));
  return (
    <Loaded query={script} skeleton={<SkeletonRows rows={6} />}>
      {(loaded) => (
        <Tabs defaultValue="train.py">
          <TabList aria-label="Files">
            <Tab value="train.py">train.py</Tab>
            <Tab value="config.json">config.json</Tab>
            <Tab value="requirements.txt">requirements.txt</Tab>
          </TabList>
          <FilePanel name="train.py" text={loaded.script} />
          <FilePanel name="config.json" text={loaded.config} />
          <FilePanel name="requirements.txt" text={loaded.requirements} />
        </Tabs>
      )}
    </Loaded>
  );
}

function FilePanel({ name, text }: { name: string; text: string }) {
  return (
    <TabPanel value={name} tabIndex={-1}>
      <div className="mb-2 flex justify-end gap-2">
        <CopyButton text={text} label={`Copy ${name}`} />
        <Button asChild size="small">
          <a href={`data:text/plain;charset=utf-8,${encodeURIComponent(text)}`} download={name}>
            <Download aria-hidden />
            Download
          </a>
        </Button>
      </div>
      {/* Wrapped: what scrolls sideways is out of reach for a keyboard. */}
      <pre className="rounded-control border border-line bg-rail p-3 font-mono text-xs break-words whitespace-pre-wrap text-code">{text}</pre>
    </TabPanel>
  );
}
