/** The table of jobs: status badges and rows used. */
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { isResting } from "@/api/jobs";
import { progressOf } from "@/api/summary";
import type { JobListItem, JobStatus } from "@/api/types";
import { cn } from "@/components/class-names";
import { type Column, DataTable } from "@/components/data-table";
import { ProgressBar } from "@/components/figures";
import { Badge } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { countText, durationText, metricText, numberOf } from "@/text/numbers";

type Tone = "neutral" | "violet" | "teal" | "good" | "bad";

const BADGES: Record<JobStatus, { text: string; tone: Tone; moving?: boolean }> = {
  queued: { text: "Queued", tone: "neutral" },
  provisioning: { text: "Starting", tone: "teal", moving: true },
  running: { text: "Running", tone: "good", moving: true },
  pausing: { text: "Pausing", tone: "teal", moving: true },
  paused: { text: "Paused", tone: "violet" },
  cancelling: { text: "Cancelling", tone: "teal", moving: true },
  cancelled: { text: "Cancelled", tone: "neutral" },
  completed: { text: "Completed", tone: "violet" },
  failed: { text: "Failed", tone: "bad" },
};

export const statusText = (status: JobStatus) => BADGES[status].text;

/** The states in the order in which a job meets them. */
export const STATUSES = Object.keys(BADGES) as JobStatus[];

export function JobStatusBadge({ status, note, className }: { status: JobStatus; note?: string; className?: string }) {
  const { text, tone, moving } = BADGES[status];
  return (
    <Badge tone={tone} className={className}>
      <span aria-hidden className={cn("size-1.75 rounded-full bg-current", moving && "shadow-[0_0_0_3px_color-mix(in_srgb,currentColor_25%,transparent)]")} />
      {text}
      {note}
    </Badge>
  );
}

/** Of a run that uses only some rows of its data: how many. */
export function RowsUsed({ job: { rows_used: rowsUsed, rows_total: rowsTotal } }: { job: Pick<JobListItem, "rows_used" | "rows_total"> }) {
  if (rowsUsed === null || rowsTotal === null || rowsUsed >= rowsTotal) return null;
  return (
    <span className="text-sm font-normal tracking-normal text-warning">
      {countText(rowsUsed)} of {countText(rowsTotal)} rows used
    </span>
  );
}

type JobNameProps = { job: JobListItem; withProject: boolean };

function JobName({ job, withProject }: JobNameProps) {
  return (
    <div className="min-w-0 md:max-w-xs">
      <Link
        to="/projects/$projectId/jobs/$jobId"
        params={{ projectId: job.project_id, jobId: job.id }}
        className="font-[570] wrap-anywhere underline-offset-3 hover:text-violet-soft hover:underline"
      >
        {job.name}
      </Link>
      {withProject && <p className="line-clamp-1 text-sm break-all text-dim">{job.project_name}</p>}
    </div>
  );
}

function Progress({ job }: { job: JobListItem }) {
  const { step, total_steps: totalSteps } = job;
  if (step === null) return <span className="text-dim">{job.queue_position ? `Queue position ${countText(job.queue_position)}` : "–"}</span>;
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

const lossOf = ({ loss }: JobListItem) => (loss === null ? null : metricText(numberOf(loss)));

/** Time left while it runs, time taken once it has ended. */
function timeOf(job: JobListItem): string | null {
  const etaSeconds = job.eta_seconds === null ? null : numberOf(job.eta_seconds);
  if (!isResting(job.status)) return etaSeconds === null || job.status === "queued" ? null : `${durationText(etaSeconds)} left`;
  if (job.active_seconds > 0) return durationText(job.active_seconds);
  if (!job.start_time || !job.end_time) return null;
  return durationText((Date.parse(job.end_time) - Date.parse(job.start_time)) / 1000);
}

const columns = (withProject: boolean): Column<JobListItem>[] => [
  {
    header: "Job",
    lead: true,
    cell: (job) => <JobName job={job} withProject={withProject} />,
  },
  {
    header: "Status",
    cell: (job) => (
      <div className="grid justify-items-start gap-1">
        <JobStatusBadge status={job.status} />
        <RowsUsed job={job} />
      </div>
    ),
  },
  { header: "Step", cell: (job) => <Progress job={job} /> },
  { header: "Loss", end: true, cell: lossOf },
  { header: "Time", end: true, cell: (job) => timeOf(job) && <span className="whitespace-nowrap">{timeOf(job)}</span> },
  { header: "Created", end: true, cell: (job) => <span className="text-dim"><TimeAgo at={job.created_at} /></span> },
];

type JobTableProps = { jobs: JobListItem[]; label: string; withProject?: boolean };

export function JobTable({ jobs, label, withProject = true }: JobTableProps) {
  const visibleColumns = useMemo(() => columns(withProject), [withProject]);
  return <DataTable label={label} columns={visibleColumns} rows={jobs} rowKey={(job) => job.id} />;
}
