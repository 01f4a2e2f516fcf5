import { type ComponentProps, type ReactNode, useEffect, useRef } from "react";
import { FormProvider } from "react-hook-form";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Notice } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { TextField } from "@/forms/text-field";
import { PageHeader } from "@/shell/page-header";
import { usePageTitle } from "@/shell/use-page-title";
import { ConfigDefaults } from "./config-fields";
import { JobKindLinks } from "./job-kind-links";
import { JsonEditor } from "./json-editor";
import { PlanCard } from "./plan-card";
import { ProjectFields } from "./project-fields";
import { ScriptButton } from "./script-button";
import type { Mode, useJobForm } from "./use-job-form";
import { WhereCard } from "./where-card";

type JobForm = ReturnType<typeof useJobForm>;

type JobFrameProps = { title: string; crumbs: ReactNode; projectId: string | undefined; job: JobForm; children: ReactNode };

/** What every form for a training job has around its own fields: the plan beside them, and a start above and below. */
export function JobFrame({ title, crumbs, projectId, job, children }: JobFrameProps) {
  usePageTitle(title);
  const { form, request, mistake, missing, failures, planned, take, setTaken, start } = job;
  const complaints = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (failures.length > 0) complaints.current?.focus();
  }, [failures]);
  return (
    <FormProvider {...form}>
      <form noValidate aria-label={title} onSubmit={(event) => void start(event)}>
        <PageHeader title={title} crumbs={crumbs}>
          <ScriptButton request={request} ready={missing === null && mistake === null} />
          <StartButton pending={form.formState.isSubmitting} />
        </PageHeader>
        <JobKindLinks projectId={projectId} />
        {failures.length > 0 && (
          <Notice ref={complaints} tabIndex={-1} tone="bad" role="alert" className="mb-3.5 grid gap-1 break-words">
            {failures.map((failure) => (
              <p key={failure}>{failure}</p>
            ))}
          </Notice>
        )}
        <div className="grid items-start gap-4.5 lg:grid-cols-[minmax(0,1fr)_minmax(0,24rem)]">
          <div className="grid min-w-0 gap-3.5">
            <ConfigDefaults value={missing === null ? (planned.answer.data?.defaults ?? null) : null}>{children}</ConfigDefaults>
            <WhereCard answer={planned.answer.data} onTake={setTaken} />
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
