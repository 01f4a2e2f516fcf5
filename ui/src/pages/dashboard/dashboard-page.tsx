/** The dashboard: running jobs, recent jobs, projects, and first steps for a new account. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Sparkles } from "lucide-react";
import type { ReactNode } from "react";
import { progressOf } from "@/api/summary";
import { jobsQuery, totalsQuery } from "@/api/jobs";
import { projectsQuery } from "@/api/projects";
import { spendingQuery } from "@/api/providers";
import type { JobListItem, Project } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ProgressBar, StatSummary } from "@/components/figures";
import { Loaded, LoadFailure, SkeletonCards } from "@/components/loaded";
import { Badge } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { architectureName, CreateProjectButton } from "@/forms/project-form";
import { JobStatusBadge, JobTable } from "@/pages/jobs/job-table";
import { DemoButton, NewJobLink } from "@/pages/jobs/new-job-link";
import { PageHeader, usePageTitle } from "@/shell/page";
import { useCurrentUser } from "@/shell/session";
import { countText, durationText, metricText, modelSizeText, moneyText, numberOf } from "@/text/numbers";

const RECENT_PROJECTS = 6;
const RECENT_JOBS = 5;
const MOST_RUNNING = 6;

/** A figure that could not be fetched is a dash, while the page around it goes on. */
function figure<T>(query: { data: T | undefined; isError: boolean }, read: (data: T) => string | number) {
  if (query.data !== undefined) return read(query.data);
  return query.isError ? "–" : undefined;
}

export function DashboardPage() {
  usePageTitle("Dashboard");
  const user = useCurrentUser();
  const projects = useQuery(projectsQuery({ limit: RECENT_PROJECTS }));
  const totals = useQuery(totalsQuery);
  const spending = useQuery(spendingQuery);
  const running = useQuery(jobsQuery({ status: ["running", "provisioning", "pausing", "cancelling"], limit: MOST_RUNNING }));
  const recent = useQuery(jobsQuery({ limit: RECENT_JOBS }));
  const isEmpty = projects.data?.total === 0;
  // Shown at once: a part that comes later would push down what somebody reads.
  const isLoading = projects.isPending || running.isPending || recent.isPending;

  return (
    <>
      <PageHeader title="Dashboard" note={`Signed in as ${user.name}.`}>
        {!isEmpty && (
          <>
            <CreateProjectButton variant="outline" />
            <Button asChild>
              <Link to="/finetune">
                <Sparkles aria-hidden />
                Fine-tune
              </Link>
            </Button>
            <NewJobLink />
          </>
        )}
      </PageHeader>
      <StatSummary
        label="Overview"
        stats={[
          { name: "Projects", value: figure(projects, (data) => data.total.toLocaleString("en-GB")) },
          { name: "Running", value: figure(totals, (data) => data.running), unit: totals.data?.queued ? `${totals.data.queued} queued` : undefined },
          { name: "Completed", value: figure(totals, (data) => data.completed) },
          { name: "Failed", value: figure(totals, (data) => data.failed) },
          { name: "Training time", value: figure(totals, (data) => durationText(data.training_seconds)) },
          // Spending is shown only to those who rent machines.
          ...(spending.data && spending.data.total > 0 ? [{ name: "Spent this month", value: moneyText(spending.data.this_month), unit: spending.data.hourly_now > 0 ? `${moneyText(spending.data.hourly_now)} per hour now` : undefined }] : []),
        ]}
      />
      {!isLoading && (
        <>
          <LoadFailure query={running.data === undefined ? running : recent} className="mt-5" />
          <RunningNow jobs={running.data?.items ?? []} />
          <RecentJobs jobs={recent.data?.items ?? []} />
        </>
      )}
      <div key={isLoading ? "loading" : "loaded"} className="mt-5">
        <Loaded query={isLoading ? { ...projects, data: undefined } : projects} skeleton={<SkeletonCards className="h-32" />}>
          {({ items, total }) =>
            total === 0 ? (
              <GettingStarted />
            ) : (
              <section aria-labelledby="recent-projects">
                <div className="mb-2.5 flex items-baseline justify-between gap-4">
                  <h2 id="recent-projects" className="text-[13px] font-[590]">
                    Recent projects
                  </h2>
                  <Link to="/projects" className="text-sm text-violet-soft underline-offset-3 hover:underline">
                    All projects
                  </Link>
                </div>
                <div className="grid gap-3.5 sm:grid-cols-2 xl:grid-cols-3">
                  {items.map((project) => (
                    <ProjectCard key={project.id} project={project} />
                  ))}
                </div>
              </section>
            )
          }
        </Loaded>
      </div>
    </>
  );
}

function Step({ number, title, children }: { number: number; title: string; children: ReactNode }) {
  return (
    <li className="flex min-w-0 gap-3.5">
      <span aria-hidden className="mt-0.5 grid size-6 shrink-0 place-items-center rounded-full border border-violet-soft/40 bg-violet/15 text-xs font-[600] text-violet-soft">
        {number}
      </span>
      <div className="min-w-0 flex-1">
        <h3 className="font-[570]">{title}</h3>
        <div className="mt-1 grid grid-cols-[minmax(0,1fr)] justify-items-start gap-2.5 text-dim [&>div]:w-full">{children}</div>
      </div>
    </li>
  );
}

/** What an empty dashboard shows instead of emptiness. */
function GettingStarted() {
  return (
    <Card>
      <CardHeader title="Getting started" />
      <ol className="grid gap-6 pb-1 sm:grid-cols-2 2xl:grid-cols-4">
        <Step number={1} title="Run the demo">
          <p>Trains a small model on built-in text. The demo needs no data and no GPU and takes a few minutes.</p>
          <DemoButton />
        </Step>
        <Step number={2} title="Fine-tune a model">
          <p>Upload a dataset, choose a base model, and watch the training live. Then chat with the fine-tuned model.</p>
          <div className="flex flex-wrap gap-2">
            <Button asChild>
              <Link to="/datasets">Upload a dataset</Link>
            </Button>
            <CreateProjectButton variant="outline" />
          </div>
        </Step>
        <Step number={3} title="Run your own script">
          <p>Run an existing training script without changes, on this machine or on a rented GPU. You see the requirements and the cost before the start.</p>
          <Button asChild>
            <Link to="/script">Run a script</Link>
          </Button>
        </Step>
        <Step number={4} title="API access">
          <p>With an API token, a script can use this server under your account. The scopes of the token limit what the script can do.</p>
          <Button asChild>
            <Link to="/settings" search={{ tab: "tokens" }}>
              Create an API token
            </Link>
          </Button>
        </Step>
      </ol>
    </Card>
  );
}

function ProjectCard({ project }: { project: Project }) {
  return (
    <Link
      to="/projects/$projectId"
      params={{ projectId: project.id }}
      className="flex min-w-0 flex-col rounded-card border border-line bg-card px-4 py-3.5 transition-colors duration-150 hover:border-violet-soft/40 hover:bg-raised"
    >
      <div className="flex items-baseline justify-between gap-3">
        <span className="min-w-0 truncate text-lg font-[590]">{project.name}</span>
        {project.modelSize !== null && <span className="shrink-0 text-lg font-[600] tracking-[-0.01em]">{modelSizeText(project.modelSize)}</span>}
      </div>
      <p className="mt-1 line-clamp-2 min-h-10 wrap-anywhere text-dim">{project.description}</p>
      <div className="mt-3 flex items-center justify-between gap-3 text-xs text-faint">
        {project.modelArchitecture ? <Badge>{architectureName(project.modelArchitecture)}</Badge> : <span />}
        <span>
          Updated <TimeAgo at={project.updatedAt} />
        </span>
      </div>
    </Link>
  );
}

/** The newest jobs. Absent until there is one. */
function RecentJobs({ jobs }: { jobs: JobListItem[] }) {
  if (jobs.length === 0) return null;
  return (
    <Card className="mt-5">
      <CardHeader title="Recent jobs">
        <Link to="/runs" className="text-sm text-violet-soft underline-offset-3 hover:underline">
          All runs
        </Link>
      </CardHeader>
      <JobTable label="Recent jobs" jobs={jobs} />
    </Card>
  );
}

/** Jobs that are under way, with their progress. Absent when there are none. */
function RunningNow({ jobs }: { jobs: JobListItem[] }) {
  if (jobs.length === 0) return null;
  return (
    <section aria-labelledby="running-now" className="mt-5">
      <h2 id="running-now" className="mb-2.5 text-[13px] font-[590]">
        Running now
      </h2>
      <div className="grid gap-3.5 sm:grid-cols-2 xl:grid-cols-3">
        {jobs.map((job) => (
          <RunningJob key={job.id} job={job} />
        ))}
      </div>
    </section>
  );
}

function RunningJob({ job }: { job: JobListItem }) {
  const { step, total_steps: totalSteps, eta_seconds: etaSeconds, loss } = job;
  return (
    <Link
      to="/projects/$projectId/jobs/$jobId"
      params={{ projectId: job.project_id, jobId: job.id }}
      className="flex min-w-0 flex-col gap-2.5 rounded-card border border-line bg-card px-4 py-3.5 transition-colors duration-150 hover:border-violet-soft/40 hover:bg-raised"
    >
      <span className="flex items-baseline justify-between gap-3">
        <span className="min-w-0">
          <span className="block truncate text-lg font-[590]">{job.name}</span>
          <span className="block truncate text-sm text-dim">{job.project_name}</span>
        </span>
        <JobStatusBadge status={job.status} />
      </span>
      <ProgressBar value={progressOf(job)} label={`Progress of ${job.name}`} />
      <span className="flex flex-wrap justify-between gap-x-4 text-xs text-dim tabular-nums">
        <span>{step === null ? "starting" : `step ${countText(step)}${totalSteps === null ? "" : ` of ${countText(totalSteps)}`}`}</span>
        {loss !== null && <span>loss {metricText(numberOf(loss))}</span>}
        {etaSeconds !== null && <span>{durationText(numberOf(etaSeconds))} left</span>}
      </span>
    </Link>
  );
}
