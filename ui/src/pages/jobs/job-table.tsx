import { Link } from "@tanstack/react-router";
import { progressOf, readSummary } from "@/api/job-summary";
import { isResting } from "@/api/jobs";
import type { Job } from "@/api/types";
import { type Column, DataTable } from "@/components/data-table";
import { TimeAgo } from "@/components/time-ago";
import { durationText } from "@/text/duration";
import { countText, metricText } from "@/text/numbers";
import { JobStatusBadge } from "./job-status";
import { ProgressBar } from "./progress-bar";

function JobName({ job, withProject }: { job: Job; withProject: boolean }) {
  return (
    <div className="min-w-0 md:max-w-xs">
      <Link
        to="/projects/$projectId/jobs/$jobId"
        params={{ projectId: job.projectId, jobId: job.id }}
        className="font-[570] break-words underline-offset-3 hover:text-violet-soft hover:underline"
      >
        {job.name}
      </Link>
      {withProject && <p className="line-clamp-1 text-sm break-all text-dim">{job.projectName}</p>}
    </div>
  );
}

function Progress({ job }: { job: Job }) {
  const { step, totalSteps } = readSummary(job);
  if (step === null) return <span className="text-dim">{job.queuePosition ? `${countText(job.queuePosition)}. in the queue` : "–"}</span>;
  return (
    <div className="w-36">
      <div className="text-xs text-dim">
        <span className="text-text">{countText(step)}</span>
        {totalSteps !== null && ` / ${countText(totalSteps)}`}
      </div>
      <ProgressBar value={progressOf(job)} label={`Progress of ${job.name}`} className="mt-1 h-1" />
    </div>
  );
}

function lossOf(job: Job): string | null {
  const { values } = readSummary(job);
  const loss = values["train/loss"];
  return loss === undefined ? null : metricText(loss);
}

/** Time left while it runs, time taken once it has ended. */
function timeOf(job: Job): string | null {
  const { etaSeconds } = readSummary(job);
  if (!isResting(job.status)) return etaSeconds === null || job.status === "queued" ? null : `${durationText(etaSeconds)} left`;
  if (!job.startTime || !job.endTime) return null;
  return durationText((Date.parse(job.endTime) - Date.parse(job.startTime)) / 1000);
}

const columns = (withProject: boolean): Column<Job>[] => [
  { header: "Job", lead: true, cell: (job) => <JobName job={job} withProject={withProject} /> },
  { header: "Status", cell: (job) => <JobStatusBadge status={job.status} /> },
  { header: "Step", cell: (job) => <Progress job={job} /> },
  { header: "Loss", end: true, cell: lossOf },
  { header: "Time", end: true, cell: timeOf },
  { header: "Created", end: true, cell: (job) => <span className="text-dim"><TimeAgo at={job.createdAt} /></span> },
];

const WITH_PROJECT = columns(true);
const WITHOUT_PROJECT = columns(false);

export function JobTable({ jobs, label, withProject = true }: { jobs: Job[]; label: string; withProject?: boolean }) {
  return <DataTable label={label} columns={withProject ? WITH_PROJECT : WITHOUT_PROJECT} rows={jobs} rowKey={(job) => job.id} />;
}
