/** The page of a training job. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { SearchX } from "lucide-react";
import { lazy, Suspense, useCallback, useMemo } from "react";
import { progressOf } from "@/api/summary";
import { fetchCurves, isResting, jobQuery } from "@/api/jobs";
import { ApiProblem } from "@/api/problem";
import type { Job } from "@/api/types";
import type { FetchRange } from "@/charts/charts-view";
import { chartMarks } from "@/charts/plot-data";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { ProgressBar } from "@/components/figures";
import { EmptyState, Loaded, Skeleton } from "@/components/loaded";
import { JobStatusBadge, RowsUsed, statusText } from "@/pages/jobs/job-table";
import { PageHeader, usePageTitle } from "@/shell/page";
import { phaseText } from "@/text/run-words";
import { ActionButtons } from "./action-buttons";
import { CheckpointsCard } from "./checkpoints-card";
import { ConfigCard, ScriptCard } from "./config-card";
import { EvaluationCard } from "./evaluation-card";
import { ExportCard } from "./export-card";
import { FindingsStrip, RunWarnings } from "./findings";
import { CostCard, JobStats } from "./job-stats";
import { MemoryCard } from "./memory-card";
import { OutputCard } from "./output-card";
import { ArtifactsCard, ModelCard, ResultCard } from "./result-cards";
import { StoredArtifactsCard } from "./stored-artifacts-card";
import { hostsOf, SystemCard } from "./system-card";
import { TaskPage } from "./task-page";
import { isTuning, TuningCard } from "./tuning-card";
import { type Connection, useJobLive } from "./use-job-live";

const JobCharts = lazy(() => import("@/charts/job-charts").then((module) => ({ default: module.JobCharts })));

const route = getRouteApi("/app/projects/$projectId/jobs/$jobId");
const RESTING_POLL_MS = 15_000;

export function JobPage() {
  const { jobId } = route.useParams();
  // A job at rest has no stream; somebody may resume it on another page.
  const job = useQuery({ ...jobQuery(jobId), refetchInterval: (query) => (query.state.data && isResting(query.state.data.status) ? RESTING_POLL_MS : false) });
  usePageTitle(job.data ? `${job.data.name}, ${statusText(job.data.status).toLowerCase()}` : "Training job");

  if (job.error instanceof ApiProblem && job.error.status === 404) return <JobMissing />;
  return (
    <Loaded query={job} skeleton={<JobSkeleton />}>
      {(loaded) => (loaded.kind === "train" || loaded.kind === "script" ? <LoadedJob key={loaded.id} job={loaded} /> : <TaskPage key={loaded.id} task={loaded} />)}
    </Loaded>
  );
}

function LoadedJob({ job }: { job: Job }) {
  const { store, connection } = useJobLive(job.id, job.status);
  const marksText = JSON.stringify(job.summary.marks);
  // The summary is new with every step; the marks in it seldom are.
  const marks = useMemo(() => chartMarks(JSON.parse(marksText)), [marksText]);
  const fetchRange = useCallback<FetchRange>((range, signal) => fetchCurves(job.id, range, signal), [job.id]);
  const completed = job.status === "completed";

  return (
    <>
      <PageHeader
        crumbs={<Crumbs job={job} />}
        title={
          <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
            <span className="min-w-0 break-words">{job.name}</span>
            <JobStatusBadge status={job.status} className="tracking-normal" />
            <Phase job={job} />
            <RowsUsed job={job} />
            <LiveDot connection={connection} />
          </span>
        }
      >
        <ActionButtons job={job} />
      </PageHeader>
      <ProgressBar value={progressOf({ status: job.status, ...job.summary })} label="Training progress" className="mb-3.5" />
      <JobStats job={job} />
      <FindingsStrip job={job} connection={connection} />
      <RunWarnings job={job} />
      <CostCard job={job} />
      {completed && (
        <div className="mt-3.5 grid gap-3.5 lg:grid-cols-12">
          <div className={job.has_model ? "lg:col-span-5" : "lg:col-span-12"}>
            <ResultCard job={job} store={store} />
          </div>
          {job.has_model && (
            <div className="lg:col-span-7">
              <ModelCard job={job} />
            </div>
          )}
        </div>
      )}
      <Suspense fallback={<ChartsSkeleton />}>
        <JobCharts store={store} marks={marks} fetchRange={fetchRange} waiting={waitingText(job)} hosts={hostsOf(job.summary)} system={<SystemCard job={job} />} aside={job.kind === "script" ? <ArtifactsCard job={job} /> : <MemoryCard job={job} store={store} />} />
      </Suspense>
      {job.offer && <StoredArtifactsCard job={job} />}
      <div className="mt-6 grid gap-3.5 lg:grid-cols-12">
        {isTuning(job) && (
          <div className="min-w-0 lg:col-span-12">
            <TuningCard job={job} store={store} />
          </div>
        )}
        <div className="min-w-0 lg:col-span-6">
          <CheckpointsCard job={job} />
        </div>
        <div className="min-w-0 lg:col-span-6">
          <OutputCard job={job} />
        </div>
        {job.kind === "train" && (
          <>
            <div className="min-w-0 lg:col-span-6">
              <EvaluationCard job={job} />
            </div>
            <div className="min-w-0 lg:col-span-6">
              <ExportCard job={job} />
            </div>
          </>
        )}
        <div className="min-w-0 lg:col-span-12">
          {job.config && <ConfigCard config={job.config} />}
        </div>
        <div className="min-w-0 lg:col-span-12">
          <ScriptCard job={job} />
        </div>
      </div>
    </>
  );
}

function waitingText({ status }: Job): string {
  if (status === "queued") return "The chart appears when the job starts.";
  return isResting(status) ? "The job ended before its first step." : "Waiting for the first step.";
}

function Crumbs({ job }: { job: Job }) {
  const linkClass = "underline-offset-3 hover:text-text hover:underline";
  return (
    <>
      <Link to="/projects" className={linkClass}>
        Projects
      </Link>{" "}
      /{" "}
      <Link to="/projects/$projectId" params={{ projectId: job.project_id }} className={`${linkClass} text-text`}>
        {job.project_name}
      </Link>{" "}
      /{" "}
      <Link to="/jobs" search={{ project: job.project_id }} className={linkClass}>
        Jobs
      </Link>
    </>
  );
}

function JobMissing() {
  return (
    <Card>
      <EmptyState
        wholePage
        icon={SearchX}
        title="Training job not found."
        action={
          <Button asChild variant="primary">
            <Link to="/jobs">Show all training jobs</Link>
          </Button>
        }
      >
        The job was deleted, or it belongs to another user.
      </EmptyState>
    </Card>
  );
}

function JobSkeleton() {
  return (
    <>
      <Skeleton className="mb-2 h-4 w-48" />
      <Skeleton className="mb-5 h-7 w-72" />
      <Skeleton className="mb-3.5 h-16 rounded-card" />
      <ChartsSkeleton />
    </>
  );
}

function ChartsSkeleton() {
  return (
    <div className="mt-3.5 grid gap-3.5 lg:grid-cols-12">
      <Skeleton className="h-80 rounded-card lg:col-span-8" />
      <Skeleton className="h-80 rounded-card lg:col-span-4" />
    </div>
  );
}

/** What a running job does other than training steps. */
function Phase({ job: { status, summary } }: { job: Job }) {
  if (status !== "running" || summary.phase === null || summary.phase === "train") return null;
  return <span className="text-xs font-[450] tracking-normal text-dim">{phaseText(summary.phase)}</span>;
}

const STATES: Record<Exclude<Connection, "resting">, { text: string; className: string }> = {
  connecting: { text: "connecting", className: "bg-faint" },
  live: { text: "live", className: "bg-success" },
  lost: { text: "connection lost", className: "bg-warning" },
};

/** Whether what is shown is what happens now. */
export function LiveDot({ connection }: { connection: Connection }) {
  if (connection === "resting") return null;
  const { text, className } = STATES[connection];
  return (
    <span className="inline-flex items-center gap-1.5 text-xs font-[450] tracking-normal text-dim">
      <span aria-hidden className={cn("size-1.5 rounded-full", className)} />
      {text}
    </span>
  );
}
