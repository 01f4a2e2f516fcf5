import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Activity } from "lucide-react";
import { jobsQuery } from "@/api/jobs";
import { Card, CardHeader } from "@/components/card";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";
import { JobTable } from "@/pages/jobs/job-table";
import { NewJobLink } from "@/pages/jobs/new-job-link";

const PAGE_SIZE = 10;

export function TrainingJobsCard({ projectId }: { projectId: string }) {
  const jobs = useQuery(jobsQuery({ projectId, limit: PAGE_SIZE }));
  const more = (jobs.data?.total ?? 0) > PAGE_SIZE;
  return (
    <Card className="h-full">
      <CardHeader title="Training jobs">
        {more && (
          <Link to="/jobs" search={{ project: projectId }} className="text-sm text-violet-soft underline-offset-3 hover:underline">
            All {jobs.data?.total} jobs
          </Link>
        )}
      </CardHeader>
      <Loaded query={jobs} skeleton={<SkeletonRows rows={4} />}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState icon={Activity} title="No training jobs yet." action={<NewJobLink projectId={projectId} />}>
              A job trains a model on this project’s data and shows how it does, live.
            </EmptyState>
          ) : (
            <JobTable label="Training jobs" jobs={items} withProject={false} />
          )
        }
      </Loaded>
    </Card>
  );
}
