/** The page of a training job: header and progress, then one tab at a time. The tab is in the address. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { SearchX } from "lucide-react";
import { type ComponentProps, lazy, Suspense, useCallback, useMemo, useSyncExternalStore } from "react";
import { progressOf, text } from "@/api/summary";
import { checkpointsQuery, fetchCurves, isResting, jobQuery, RESTING_EVERY } from "@/api/jobs";
import { useUnreachable } from "@/api/client";
import { isGone } from "@/api/problem";
import type { Job } from "@/api/types";
import type { FetchRange } from "@/charts/charts-view";
import type { CurveStore } from "@/charts/curve-store";
import { chartMarks, stepsPerEpoch } from "@/charts/plot-data";
import { cn } from "@/components/class-names";
import { ProgressBar } from "@/components/figures";
import { Loaded, Skeleton } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { JobStatusBadge, RowsUsed, statusText } from "@/pages/jobs/job-table";
import { gpuText } from "@/pages/offers/offer-selection";
import { JOB_TABS, type JobTab } from "@/shell/address";
import { PageHeader, usePageTitle } from "@/shell/page";
import { ItemNotFound } from "@/shell/page-error";
import { useFolder } from "@/shell/session";
import { countText } from "@/text/numbers";
import { phaseText } from "@/text/run-words";
import { ActionButtons } from "./action-buttons";
import { CheckpointsCard } from "./checkpoints-card";
import { ConfigCard, ScriptCard } from "./config-card";
import { WhatRanCard } from "./what-ran-card";
import { EvaluationCard } from "./evaluation-card";
import { ExportCard } from "./export-card";
import { type Finding, FindingsBadge, FindingsList, RunWarnings, useFindings } from "./findings";
import { JobStats } from "./job-stats";
import { LineageCard } from "./lineage-card";
import { MemoryCard } from "./memory-card";
import { OutputCard } from "./output-card";
import { OverviewTab } from "./overview-tab";
import { ModelCard, ResultCard } from "./result-cards";
import { SamplesTab } from "./samples-tab";
import { StartCard } from "./start-card";
import { StoredArtifactsCard } from "./stored-artifacts-card";
import { hostsOf, SystemCard } from "./system-card";
import { TaskPage } from "./task-page";
import { isTuning, methodText, TuningCard } from "./tuning-card";
import { type Connection, useJobLive } from "./use-job-live";

const JobCharts = lazy(() => import("@/charts/job-charts").then((module) => ({ default: module.JobCharts })));

const route = getRouteApi("/app/projects/$projectId/jobs/$jobId");

export function JobPage() {
  const { jobId } = route.useParams();
  // A job at rest has no stream; somebody may resume it on another page.
  const job = useQuery({ ...jobQuery(jobId), refetchInterval: (query) => (query.state.data && isResting(query.state.data.status) ? RESTING_EVERY : false) });
  usePageTitle(job.data ? `${job.data.name}, ${statusText(job.data.status).toLowerCase()}` : "Training job");

  if (isGone(job.error)) {
    return (
      <ItemNotFound icon={SearchX} title="Training job not found." link={<Link to="/runs">Show all runs</Link>}>
        The job was deleted, or it belongs to another user.
      </ItemNotFound>
    );
  }
  return (
    <Loaded query={job} skeleton={<JobSkeleton />}>
      {(loaded) => (loaded.kind === "train" || loaded.kind === "script" || loaded.kind === "run" ? <LoadedJob key={loaded.id} job={loaded} /> : <TaskPage key={loaded.id} task={loaded} />)}
    </Loaded>
  );
}

function LoadedJob({ job }: { job: Job }) {
  const { store, connection } = useJobLive(job.id, job.status);
  const { tab = "overview" } = route.useSearch();
  const navigate = useNavigate({ from: "/projects/$projectId/jobs/$jobId" });
  const findings = useFindings(job);
  const counts = useTabCounts(job, findings);
  const inFolder = useFolder() !== null;
  const show = (chosen: string) => void navigate({ search: { tab: JOB_TABS.find((each): each is Exclude<JobTab, "overview"> => each === chosen && each !== "overview") }, resetScroll: false });

  return (
    <>
      <PageHeader
        crumbs={inFolder ? <FolderCrumbs job={job} /> : <Crumbs job={job} />}
        title={
          <span className="flex flex-wrap items-center gap-x-2.5 gap-y-1">
            <span className="min-w-0 wrap-anywhere">{job.name}</span>
            <JobStatusBadge status={job.status} className="tracking-normal" />
            <FindingsBadge findings={findings} />
            <RowsUsed job={job} />
            <Phase job={job} />
            <LiveDot connection={connection} />
          </span>
        }
        note={subtitleOf(job)}
      >
        {!inFolder && <ActionButtons job={job} />}
      </PageHeader>
      <RunProgress job={job} />
      {/* Why it failed is read before any figure, on every tab. */}
      {job.status === "failed" && <FindingsList findings={findings} job={job} className="mb-3.5" />}
      <JobStats job={job} />
      {connection === "lost" && <ConnectionLost />}
      <Tabs value={tab} onValueChange={show} activationMode="manual" className="mt-2.5">
        <TabList aria-label="Job">
          {JOB_TABS.map((each) => (
            <Tab key={each} value={each}>
              {TAB_TEXTS[each]}
              <TabCount {...(counts[each] ?? {})} />
            </Tab>
          ))}
        </TabList>
        <TabPanel value={tab} className="mt-2.5">
          <TabContent tab={tab} job={job} store={store} findings={findings} />
        </TabPanel>
      </Tabs>
    </>
  );
}

const TAB_TEXTS: Record<JobTab, string> = {
  overview: "Overview",
  charts: "Charts",
  samples: "Samples",
  logs: "Logs",
  checkpoints: "Checkpoints",
  evaluate: "Evaluate",
  config: "Config",
  system: "System",
};

type Count = { count?: number; attention?: boolean };

function TabCount({ count = 0, attention = false }: Count) {
  if (count === 0) return null;
  return <small className={cn("ml-1.5 text-2xs tabular-nums", attention ? "text-warning" : "text-dim")}>{countText(count)}</small>;
}

/** What a tab holds, where its number says more than its name. */
function useTabCounts(job: Job, findings: Finding[]): Partial<Record<JobTab, Count>> {
  const checkpoints = useQuery(checkpointsQuery(job.id));
  return {
    logs: { count: findings.filter(({ tone }) => tone !== "plain").length, attention: true },
    checkpoints: { count: checkpoints.data?.items.length },
  };
}

type TabContentProps = { tab: JobTab; job: Job; store: CurveStore; findings: Finding[] };

function TabContent({ tab, job, store, findings }: TabContentProps) {
  const marksText = JSON.stringify(job.summary.marks);
  // The summary is new with every step; the marks in it seldom are.
  const best = useQuery(checkpointsQuery(job.id)).data?.items.find((one) => one.best)?.step ?? null;
  const marks = useMemo(() => chartMarks(JSON.parse(marksText), best), [marksText, best]);
  const fetchRange = useCallback<FetchRange>((range, signal) => fetchCurves(job.id, range, signal), [job.id]);
  const loaded = useSyncExternalStore(store.subscribe, () => store.loaded);
  const charts = (props: Pick<ComponentProps<typeof JobCharts>, "parts" | "aside">) => (
    <Suspense fallback={<ChartsSkeleton />}>
      {/* Before its curves are loaded, nobody knows whether a job has any. */}
      <div>{loaded ? <JobCharts store={store} marks={marks} fetchRange={fetchRange} waiting={waitingText(job)} hosts={hostsOf(job.summary)} stepsPerEpoch={stepsPerEpoch(job.summary)} {...props} /> : <ChartsSkeleton />}</div>
    </Suspense>
  );

  switch (tab) {
    case "overview":
      return (
        <div className="grid gap-3.5">
          {job.status !== "failed" && <FindingsList findings={findings} job={job} />}
          <StartCard job={job} />
          <OverviewTab job={job} store={store} charts={(aside) => charts({ parts: ["summary"], aside })} />
        </div>
      );
    case "charts":
      return charts({ parts: ["training"] });
    case "samples":
      return <SamplesTab job={job} />;
    case "logs":
      return (
        <div className="grid gap-3.5">
          <RunWarnings job={job} />
          <OutputCard job={job} />
        </div>
      );
    case "checkpoints":
      return (
        <div className="grid gap-3.5">
          <CheckpointsCard job={job} />
          {job.kind === "train" && (
            <div className="grid grid-cols-1 items-start gap-3.5 lg:grid-cols-[minmax(0,7fr)_minmax(0,5fr)]">
              <ExportCard job={job} />
              <div className="grid min-w-0 grid-cols-1 gap-3.5">
                {job.status === "completed" && job.has_model && <ModelCard job={job} />}
                <LineageCard job={job} />
              </div>
            </div>
          )}
          {job.offer && <StoredArtifactsCard job={job} />}
        </div>
      );
    case "evaluate":
      return (
        <div className="grid gap-3.5">
          {job.kind === "train" && <EvaluationCard job={job} />}
          <ResultCard job={job} store={store} />
        </div>
      );
    case "config":
      return (
        <div className="grid gap-3.5">
          {isTuning(job) && <TuningCard job={job} store={store} />}
          {job.config && <ConfigCard config={job.config} />}
          <WhatRanCard jobId={job.id} />
          {job.kind !== "run" && <ScriptCard job={job} />}
        </div>
      );
    case "system":
      return (
        <div className="grid gap-3.5">
          <div className="grid gap-3.5 empty:hidden lg:grid-cols-[minmax(0,7fr)_minmax(0,5fr)] [&>:only-child]:col-span-full">
            <SystemCard job={job} />
            {job.kind === "train" && <MemoryCard brief job={job} store={store} />}
          </div>
          {charts({ parts: ["engine", "system"] })}
        </div>
      );
  }
}

/** "google/gemma-2-9b-it · LoRA · support-tickets-v4 · RunPod, H100". */
function subtitleOf(job: Job): string {
  const { config, summary } = job;
  const path = config?.model.path;
  const model = job.model_name ?? (path ? (path.split("/").findLast(Boolean) ?? path) : (config?.model.preset ?? null));
  const machine = job.offer ? `${job.offer.title}, ${gpuText(job.offer)}` : (job.gpu_type ?? text(summary.facts["gpu/0/name"]) ?? text(summary.facts.device));
  return [model, config && methodText(config.method), [job.dataset_name, ...job.mix.map(({ name }) => name)].filter(Boolean).join(" + "), machine].filter(Boolean).join(" · ");
}

/** The bar of the whole run; a ring marks the best checkpoint, gaps are epochs. */
function RunProgress({ job }: { job: Job }) {
  const { summary } = job;
  const checkpoints = useQuery(checkpointsQuery(job.id));
  const total = summary.total_steps;
  const best = checkpoints.data?.items.find(({ best: isBest }) => isBest);
  const epochs = summary.epochs ?? 0;
  const gaps = epochs > 1 && epochs <= MOST_GAPS ? Array.from({ length: Math.ceil(epochs) - 1 }, (_, index) => (index + 1) / epochs) : [];
  return (
    <div className="relative mb-3.5">
      <ProgressBar value={progressOf({ status: job.status, ...summary })} label="Training progress" />
      {gaps.map((at) => (
        <span key={at} aria-hidden className="absolute top-0 h-1.5 w-0.5 bg-page" style={{ left: `${at * 100}%` }} />
      ))}
      {best && total && (
        <span role="img" aria-label={`Best checkpoint at step ${countText(best.step)}`} className="absolute -top-[3px] size-3 -translate-x-1/2 rounded-full border-3 border-success-soft bg-page" style={{ left: `${Math.min(100, (best.step / total) * 100)}%` }} />
      )}
    </div>
  );
}

const MOST_GAPS = 20;

function ConnectionLost() {
  // Said above every page then.
  if (useUnreachable()) return null;
  return (
    <Notice role="status" tone="attention" className="mt-3">
      <b className="mr-2 font-[570]">Connection lost.</b>
      <span className="text-dim">Reconnecting automatically. The training continues; missed values appear after the reconnect.</span>
    </Notice>
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
      <Link to="/runs" search={{ query: `project_id = ${job.project_id}` }} className={linkClass}>
        Runs
      </Link>
    </>
  );
}

function FolderCrumbs({ job }: { job: Job }) {
  return (
    <>
      <Link to="/runs" className="underline-offset-3 hover:text-text hover:underline">
        Runs
      </Link>{" "}
      / <span className="text-text">{job.project_name}</span>
    </>
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
    <div className="grid gap-3.5 lg:grid-cols-12">
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

const STATES: Record<Exclude<Connection, "resting">, { word: string; className: string }> = {
  connecting: { word: "connecting", className: "bg-faint" },
  live: { word: "live", className: "bg-success" },
  lost: { word: "connection lost", className: "bg-warning" },
};

/** Whether what is shown is what happens now. */
export function LiveDot({ connection }: { connection: Connection }) {
  // A server that shuts down keeps the stream open for a while, and sends nothing.
  const unreachable = useUnreachable();
  if (connection === "resting") return null;
  const { word, className } = STATES[unreachable ? "lost" : connection];
  return (
    <span className="inline-flex items-center gap-1.5 text-xs font-[450] tracking-normal text-dim">
      <span aria-hidden className={cn("size-1.5 rounded-full", className)} />
      {word}
    </span>
  );
}
