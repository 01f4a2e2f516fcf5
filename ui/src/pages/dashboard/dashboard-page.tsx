import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Sparkles } from "lucide-react";
import { totalsQuery } from "@/api/jobs";
import { projectsQuery } from "@/api/projects";
import { spendingQuery } from "@/api/providers";
import { Button } from "@/components/button";
import { Loaded } from "@/components/loaded";
import { Skeleton } from "@/components/skeleton";
import { StatSummary } from "@/components/stat-summary";
import { CreateProjectButton } from "@/forms/create-project-button";
import { useCurrentUser } from "@/shell/current-user";
import { NewJobLink } from "@/pages/jobs/new-job-link";
import { PageHeader } from "@/shell/page-header";
import { usePageTitle } from "@/shell/use-page-title";
import { durationText } from "@/text/duration";
import { moneyText } from "@/text/money";
import { GettingStarted } from "./getting-started";
import { ProjectCard } from "./project-card";
import { RecentJobs } from "./recent-jobs";
import { RunningNow } from "./running-now";

const RECENT = 6;

/** A figure that could not be fetched is a dash, while the page around it goes on. */
function figure<T>(query: { data: T | undefined; isError: boolean }, read: (data: T) => string | number) {
  if (query.data !== undefined) return read(query.data);
  return query.isError ? "–" : undefined;
}

export function DashboardPage() {
  usePageTitle("Dashboard");
  const user = useCurrentUser();
  const projects = useQuery(projectsQuery({ limit: RECENT }));
  const totals = useQuery(totalsQuery);
  const spending = useQuery(spendingQuery);
  const hasProjects = projects.data !== undefined && projects.data.total > 0;

  return (
    <>
      <PageHeader title="Dashboard" note={`Signed in as ${user.name}.`}>
        {hasProjects && (
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
          { name: "Training time", value: figure(totals, (data) => durationText(data.trainingSeconds)) },
          // Who rents nothing is not asked to look at money.
          ...(spending.data && spending.data.total > 0 ? [{ name: "Spent this month", value: moneyText(spending.data.thisMonth), unit: spending.data.hourlyNow > 0 ? `${moneyText(spending.data.hourlyNow)} an hour now` : undefined }] : []),
        ]}
      />
      <RunningNow />
      <RecentJobs />
      <div className="mt-5">
        <Loaded query={projects} skeleton={<CardSkeletons />}>
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

function CardSkeletons() {
  return (
    <div className="grid gap-3.5 sm:grid-cols-2 xl:grid-cols-3">
      <Skeleton className="h-32 rounded-card" />
      <Skeleton className="h-32 rounded-card" />
      <Skeleton className="h-32 rounded-card" />
    </div>
  );
}
