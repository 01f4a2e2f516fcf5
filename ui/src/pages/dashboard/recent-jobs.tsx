import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { jobsQuery } from "@/api/jobs";
import { Card, CardHeader } from "@/components/card";
import { JobTable } from "@/pages/jobs/job-table";

const RECENT = 5;

/** The newest jobs. Absent until there is one. */
export function RecentJobs() {
  const jobs = useQuery(jobsQuery({ limit: RECENT }));
  const items = jobs.data?.items ?? [];
  if (items.length === 0) return null;
  return (
    <Card className="mt-5">
      <CardHeader title="Recent jobs">
        <Link to="/jobs" className="text-sm text-violet-soft underline-offset-3 hover:underline">
          All training jobs
        </Link>
      </CardHeader>
      <JobTable label="Recent jobs" jobs={items} />
    </Card>
  );
}
