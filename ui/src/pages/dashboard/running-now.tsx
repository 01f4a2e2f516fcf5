import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { progressOf, readSummary } from "@/api/job-summary";
import { jobsQuery } from "@/api/jobs";
import type { Job } from "@/api/types";
import { JobStatusBadge } from "@/pages/jobs/job-status";
import { ProgressBar } from "@/pages/jobs/progress-bar";
import { durationText } from "@/text/duration";
import { countText, metricText } from "@/text/numbers";

const MOST = 6;

/** Jobs that are under way, with their progress. Absent when there are none. */
export function RunningNow() {
  const jobs = useQuery(jobsQuery({ status: ["running", "provisioning", "pausing", "cancelling"], limit: MOST }));
  const items = jobs.data?.items ?? [];
  if (items.length === 0) return null;
  return (
    <section aria-labelledby="running-now" className="mt-5">
      <h2 id="running-now" className="mb-2.5 text-[13px] font-[590]">
        Running now
      </h2>
      <div className="grid gap-3.5 sm:grid-cols-2 xl:grid-cols-3">
        {items.map((job) => (
          <RunningJob key={job.id} job={job} />
        ))}
      </div>
    </section>
  );
}

function RunningJob({ job }: { job: Job }) {
  const { step, totalSteps, etaSeconds, values } = readSummary(job);
  const loss = values["train/loss"];
  return (
    <Link
      to="/projects/$projectId/jobs/$jobId"
      params={{ projectId: job.projectId, jobId: job.id }}
      className="flex min-w-0 flex-col gap-2.5 rounded-card border border-line bg-card px-4 py-3.5 transition-colors duration-150 hover:border-violet-soft/40 hover:bg-[#2a3547]"
    >
      <span className="flex items-baseline justify-between gap-3">
        <span className="min-w-0">
          <span className="block truncate text-lg font-[590]">{job.name}</span>
          <span className="block truncate text-sm text-dim">{job.projectName}</span>
        </span>
        <JobStatusBadge status={job.status} />
      </span>
      <ProgressBar value={progressOf(job)} label={`Progress of ${job.name}`} />
      <span className="flex flex-wrap justify-between gap-x-4 text-xs text-dim tabular-nums">
        <span>{step === null ? "starting" : `step ${countText(step)}${totalSteps === null ? "" : ` of ${countText(totalSteps)}`}`}</span>
        {loss !== undefined && <span>loss {metricText(loss)}</span>}
        {etaSeconds !== null && <span>{durationText(etaSeconds)} left</span>}
      </span>
    </Link>
  );
}
