import { useQuery } from "@tanstack/react-query";
import { Link2Off } from "lucide-react";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { progressOf } from "@/api/summary";
import { isResting, sharedCurvesQuery, sharedJobQuery } from "@/api/jobs";
import { isGone } from "@/api/problem";
import type { Job } from "@/api/types";
import { CurveStore } from "@/charts/curve-store";
import { chartMarks } from "@/charts/plot-data";
import { ProgressBar } from "@/components/figures";
import { EmptyState, Loaded, Skeleton } from "@/components/loaded";
import { ConfigCard } from "@/pages/job/config-card";
import { JobStats } from "@/pages/job/job-stats";
import { MemoryCard } from "@/pages/job/memory-card";
import { JobStatusBadge, RowsUsed } from "@/pages/jobs/job-table";
import { useFragment } from "@/shell/address";
import { BarePage, Brand, PageHeader, usePageTitle } from "@/shell/page";

const JobCharts = lazy(() => import("@/charts/job-charts").then((module) => ({ default: module.JobCharts })));

/** What somebody sees who was sent a link to a run: its figures and charts, and nothing to press. */
export function SharedPage() {
  const token = useFragment("token");
  return token === null ? <LinkMissing /> : <Shared token={token} />;
}

function Shared({ token }: { token: string }) {
  const job = useQuery(sharedJobQuery(token));
  usePageTitle(job.data?.name ?? "Shared run");
  if (isGone(job.error)) return <LinkMissing />;
  return (
    <div className="mx-auto max-w-[1320px] px-4 pt-5 pb-10 sm:px-7">
      <header className="mb-5">
        <Brand to="/" />
      </header>
      <main>
        <Loaded query={job} skeleton={<Skeleton className="h-80 rounded-card" />}>
          {(loaded) => <SharedJob token={token} job={loaded} />}
        </Loaded>
      </main>
    </div>
  );
}

function SharedJob({ token, job }: { token: string; job: Job }) {
  const live = !isResting(job.status);
  const curves = useQuery(sharedCurvesQuery(token, live));
  const [store] = useState(() => new CurveStore());
  useEffect(() => {
    if (curves.data) store.load(curves.data);
  }, [store, curves.data]);
  const marksText = JSON.stringify(job.summary.marks);
  const marks = useMemo(() => chartMarks(JSON.parse(marksText)), [marksText]);
  return (
    <>
      <PageHeader
        crumbs={job.project_name}
        title={
          <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
            {job.name}
            <JobStatusBadge status={job.status} className="tracking-normal" />
            <RowsUsed job={job} />
          </span>
        }
        note="This is a shared, read-only view of a training run."
      />
      <ProgressBar value={progressOf({ status: job.status, ...job.summary })} label="Training progress" className="mb-3.5" />
      <JobStats job={job} />
      <div className="mt-3.5 mb-6">
        <Loaded query={curves} skeleton={<Skeleton className="h-80 rounded-card" />}>
          {() => (
            <Suspense fallback={<Skeleton className="h-80 rounded-card" />}>
              <JobCharts store={store} marks={marks} waiting={live ? "Waiting for the first step." : "The job ended before its first step."} aside={<MemoryCard job={job} store={store} />} />
            </Suspense>
          )}
        </Loaded>
      </div>
      <div>
        {job.config && <ConfigCard config={job.config} />}
      </div>
    </>
  );
}

function LinkMissing() {
  usePageTitle("Invalid link");
  return (
    <BarePage>
      <EmptyState wholePage icon={Link2Off} title="This link is invalid or was revoked.">
        Ask the person who sent you the link for a new one.
      </EmptyState>
    </BarePage>
  );
}
