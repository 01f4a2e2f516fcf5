import { Link } from "@tanstack/react-router";
import { X } from "lucide-react";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { JobStatusBadge } from "@/pages/jobs/job-status";
import { colourOf } from "./compared";

type RunLegendProps = { jobs: Job[]; labels: string[]; onRemove?: (id: string) => void };

/** Which colour is which run. */
export function RunLegend({ jobs, labels, onRemove }: RunLegendProps) {
  return (
    <Card className="py-2.5">
      <ul aria-label="Runs" className="flex flex-wrap gap-x-5 gap-y-1">
        {jobs.map((job, index) => (
          <li key={job.id} className="flex min-w-0 items-center gap-2">
            <Swatch index={index} />
            <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId: job.projectId, jobId: job.id }} className="min-w-0 truncate font-[560] underline-offset-3 hover:text-violet-soft hover:underline">
              {labels[index]}
            </Link>
            <JobStatusBadge status={job.status} />
            {onRemove && (
              <Button variant="ghost" size="icon" aria-label={`Leave ${labels[index]} out`} className="size-7 max-sm:size-9" onClick={() => onRemove(job.id)}>
                <X aria-hidden />
              </Button>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}

export function Swatch({ index }: { index: number }) {
  return <span aria-hidden className="inline-block h-[3px] w-3 shrink-0 rounded-full" style={{ background: colourOf(index) }} />;
}
