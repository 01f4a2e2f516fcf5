/** The frame of the forms that start a training job: project, config as form or JSON, plan, script. */
import { useQuery } from "@tanstack/react-query";
import { Download, FileCode } from "lucide-react";
import { type ReactNode, useState } from "react";
import { FormProvider, useFormContext, useWatch } from "react-hook-form";
import { planScriptQuery } from "@/api/jobs";
import type { PlanRequest } from "@/api/types";
import { Accordion } from "@/components/accordion";
import { Button, CopyButton } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Dialog } from "@/components/dialog";
import { Textarea } from "@/components/input";
import { Loaded, LoadFailure, SkeletonRows } from "@/components/loaded";
import { FailureNotice } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { Field, SelectField, TextField } from "@/forms/field";
import { type JobFormValues, NEW_PROJECT } from "@/forms/job-form";
import { useProjectOptions } from "@/forms/project-options";
import { PageHeader, usePageTitle } from "@/shell/page";
import { aboutText, counted, durationText } from "@/text/numbers";
import { ConfigDefaults, useFieldError } from "./config-fields";
import { JobKindLinks } from "./new-job-header";
import { PlanCard } from "./plan-card";
import type { Mode, useJobForm } from "./use-job-form";

type JobForm = ReturnType<typeof useJobForm>;

type JobFrameProps = {
  title: string;
  crumbs: ReactNode;
  projectId: string | undefined;
  job: JobForm;
  /** Whether the model is taken by its id, not described by the config. */
  byId?: boolean;
  /** The first choices. On a phone the plan follows them; the other fields come after it. */
  lead: ReactNode;
  /** Stands above the plan. */
  aside?: ReactNode;
  children: ReactNode;
};

/** What every form for a training job has around its own fields: the plan next to them, and a bar that starts the job. */
export function JobFrame({ title, crumbs, projectId, job, byId = false, lead, aside, children }: JobFrameProps) {
  usePageTitle(title);
  const { form, request, mistake, missing, failures, planned, take, start } = job;
  const answered = missing === null ? planned.answer.data?.defaults : null;
  return (
    <FormProvider {...form}>
      <form noValidate aria-label={title} onSubmit={(event) => void start(event)}>
        <PageHeader title={title} crumbs={crumbs}>
          <ScriptButton request={request} ready={missing === null && mistake === null} />
        </PageHeader>
        <JobKindLinks projectId={projectId} />
        <FailureNotice failures={failures} />
        <ConfigDefaults value={{ planned: answered ?? null, behind: planned.behind, byId }}>
          <div className="grid items-start gap-x-4.5 gap-y-3.5 lg:grid-cols-[minmax(0,1fr)_minmax(0,24rem)] lg:grid-rows-[auto_1fr]">
            <div className="grid min-w-0 gap-3.5">{lead}</div>
            <div className="grid min-w-0 gap-3.5 lg:sticky lg:top-5 lg:col-start-2 lg:row-span-2 lg:row-start-1">
              {aside}
              <PlanCard planned={planned} missing={missing} onTake={take} />
            </div>
            <div className="grid min-w-0 gap-3.5">{children}</div>
          </div>
        </ConfigDefaults>
        <StartBar job={job} />
      </form>
    </FormProvider>
  );
}

/** The start button, in reach from anywhere in the form, and in a few words whether the job can start. */
function StartBar({ job: { form, missing, mistake, rentalMistake, planned } }: { job: JobForm }) {
  return (
    <div className="sticky bottom-0 z-20 -mx-1 mt-3.5 flex items-center lg:mr-[calc(24rem+0.875rem)] justify-between gap-4 rounded-t-card border border-b-0 border-line-strong bg-raised px-4 py-2.5 shadow-[0_-8px_20px_rgb(0_0_0/0.25)]">
      <p className="line-clamp-3 min-w-0 text-sm wrap-anywhere text-dim">{missing ?? rentalMistake ?? (mistake === null ? readiness(planned) : "Correct the JSON config.")}</p>
      <Button type="submit" variant="primary" size="large" pending={form.formState.isSubmitting}>
        Start training
      </Button>
    </div>
  );
}

function readiness({ answer: { data: answer, isError }, behind }: JobForm["planned"]): string {
  if (isError && !behind) return "The plan failed. See the plan.";
  if (!answer || behind) return "Planning…";
  if (!answer.fits) return answer.reason ?? "This job cannot run with these settings.";
  const steps = answer.plan?.steps ? counted(answer.plan.steps, "step") : null;
  const time = answer.plan?.seconds ? aboutText(durationText(answer.plan.seconds)) : null;
  return ["Ready to start", [steps, time].filter(Boolean).join(", ")].filter(Boolean).join(": ");
}

type ConfigTabsProps = { job: JobForm; title: string; children: ReactNode };

/** A card with the config as a form, or as JSON. */
export function ConfigTabs({ job: { mode, switchTo, json, mistake, typeJson }, title, children }: ConfigTabsProps) {
  return (
    <Card>
      <Tabs value={mode} onValueChange={(next) => switchTo(next as Mode)}>
        <CardHeader title={mode === "form" ? title : "Config as JSON"}>
          <TabList aria-label="Config" className="-my-1.5">
            <Tab value="form">Form</Tab>
            <Tab value="json">JSON</Tab>
          </TabList>
        </CardHeader>
        <TabPanel value="form" tabIndex={-1} className="mt-0">
          {children}
        </TabPanel>
        <TabPanel value="json" tabIndex={-1} className="mt-0">
          <JsonEditor text={json} mistake={mistake} onChange={typeJson} />
        </TabPanel>
      </Tabs>
    </Card>
  );
}

type JobCardProps = { form: JobForm["form"]; inProject: boolean; usualName: string };

/** What the job is called, and whose it is. */
export function JobCard({ form, inProject, usualName }: JobCardProps) {
  return (
    <Card>
      <CardHeader title="Job" />
      <JobFields form={form} inProject={inProject} usualName={usualName} />
    </Card>
  );
}

function JobFields({ form, inProject, usualName }: JobCardProps) {
  return (
    <div className="grid gap-3.5 sm:auto-cols-fr sm:grid-flow-col">
      {!inProject && <ProjectFields />}
      <TextField label="Job name" optional autoComplete="off" placeholder={usualName} registration={form.register("name")} error={form.formState.errors.name?.message} />
    </div>
  );
}

/** The same in a closed section, for a form that knows a good name. */
export function JobAccordion({ form, usualName }: Omit<JobCardProps, "inProject">) {
  const [open, setOpen] = useState(false);
  const error = useFieldError();
  const [name, project, projectName] = useWatch({ control: form.control, name: ["name", "project", "projectName"] });
  const projects = useProjectOptions(project === NEW_PROJECT ? undefined : project);
  const known = projects.options.find(([id]) => id === project)?.[1];
  const projectText = project === NEW_PROJECT ? `new project “${projectName}”` : known && `project “${known}”`;
  const wrong = ["name", "project", "projectName"].some((field) => error(field) !== undefined);
  return (
    <Accordion title="Job name and project" summary={[name.trim() || usualName, projectText].filter(Boolean).join(" · ")} open={open || wrong} onToggle={setOpen}>
      <JobFields form={form} inProject={false} usualName={usualName} />
    </Accordion>
  );
}

/** The project a job belongs to: one that exists, or one that is created together with the job. */
function ProjectFields() {
  const { register } = useFormContext<JobFormValues>();
  const project = useWatch<JobFormValues, "project">({ name: "project" });
  const projects = useProjectOptions(project === NEW_PROJECT ? undefined : project);
  const error = useFieldError();
  const options = [[NEW_PROJECT, "New project…"] as const, ...projects.options];
  return (
    <>
      <div className="grid min-w-0 content-start gap-2">
        {/* The list arrives after the form: without its value the browser would show the first entry. */}
        <SelectField label="Project" value={project} options={options} registration={register("project")} error={error("project")} />
        <LoadFailure query={projects.query} />
      </div>
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
    <Field label="Training config" error={mistake ?? undefined} help="Fields that you leave out get recommended values. Example fields: max_steps, seed, model.layers, optimizer.beta2, eval.every_steps.">
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
      <pre className="rounded-control border border-line bg-rail p-3 font-mono text-xs wrap-anywhere whitespace-pre-wrap text-code">{text}</pre>
    </TabPanel>
  );
}
