import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Activity, SearchX } from "lucide-react";
import { FEWEST, isResting, jobsQuery } from "@/api/jobs";
import { projectsQuery } from "@/api/projects";
import type { JobStatus } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { PageSteps } from "@/components/data-table";
import { SearchBox, Select } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import type { JobsSearch } from "@/shell/address";
import { PageHeader, usePageTitle } from "@/shell/page";
import { JobTable, STATUSES, statusText, useSelection } from "./job-table";
import { DemoButton, NewJobLink } from "./new-job-link";

const route = getRouteApi("/app/jobs");
const PAGE = 20;
const ACTIVE = STATUSES.filter((status) => !isResting(status));

const STATUS_CHOICES = [
  ["", "All statuses"],
  ["active", "In progress"],
  ...STATUSES.filter((status) => isResting(status) || status === "queued" || status === "running").map((status) => [status, statusText(status)] as const),
] as const;

function wantedStatuses(chosen: string | undefined): JobStatus[] | undefined {
  if (chosen === "active") return ACTIVE;
  const known = STATUSES.find((status) => status === chosen);
  return known && [known];
}

export function JobsPage() {
  usePageTitle("Training jobs");
  const { search = "", page = 1, status, project } = route.useSearch();
  const navigate = useNavigate({ from: "/jobs" });
  const jobs = useQuery(jobsQuery({ search, status: wantedStatuses(status), project_id: project, limit: PAGE, offset: (page - 1) * PAGE }));
  const selection = useSelection();
  const filtered = search !== "" || status !== undefined || project !== undefined;
  const nothingYet = jobs.data?.total === 0 && !filtered;

  const filter = (change: Partial<JobsSearch>) =>
    void navigate({ search: (kept) => ({ ...kept, ...change, page: undefined }), replace: true });
  const turn = (to: number) => void navigate({ search: (kept) => ({ ...kept, page: to > 1 ? to : undefined }) });

  return (
    <>
      <PageHeader title="Training jobs">
        {selection.chosen.length > 0 && <CompareButton selection={selection} />}
        {!nothingYet && <NewJobLink projectId={project} />}
      </PageHeader>
      <Card>
        {!nothingYet && (
          <div className="mb-3.5 flex flex-wrap gap-2.5 [&>div]:mb-0 [&>div]:max-sm:w-full">
            <SearchBox label="Search jobs" text={search} onSearch={(text) => filter({ search: text || undefined })} busy={jobs.isPlaceholderData} />
            <Select aria-label="Status" options={STATUS_CHOICES} value={status ?? ""} onChange={(event) => filter({ status: event.target.value || undefined })} className="sm:w-44" />
            <ProjectChoice chosen={project} onChoose={(id) => filter({ project: id })} />
          </div>
        )}
        <Loaded query={jobs} skeleton={<SkeletonRows rows={5} className="h-11" />}>
          {({ items, total }) => {
            if (nothingYet) {
              return (
                <EmptyState
                  icon={Activity}
                  title="No training jobs yet."
                  action={
                    <div className="flex flex-wrap justify-center gap-2">
                      <NewJobLink />
                      <DemoButton variant="outline" />
                    </div>
                  }
                >
                  A job trains a model and shows its progress live. The demo run needs no setup and takes a few minutes.
                </EmptyState>
              );
            }
            if (items.length === 0) {
              return (
                <EmptyState
                  icon={SearchX}
                  title="No jobs match."
                  action={<Button onClick={() => void navigate({ search: {}, replace: true })}>Show all jobs</Button>}
                />
              );
            }
            return (
              <>
                <JobTable label="Training jobs" jobs={items} selection={selection} />
                <PageSteps page={page} pageSize={PAGE} total={total} onTurn={turn} />
              </>
            );
          }}
        </Loaded>
      </Card>
    </>
  );
}

/** Leads to the comparison; says what is missing while one run is chosen. */
function CompareButton({ selection }: { selection: ReturnType<typeof useSelection> }) {
  const enough = selection.chosen.length >= FEWEST;
  const text = enough ? `Compare ${selection.chosen.length} runs` : "Select another run to compare";
  return (
    <>
      <Button variant="ghost" onClick={selection.clear}>
        Clear selection
      </Button>
      {enough ? (
        <Button asChild>
          <Link to="/compare" search={{ job: [...selection.chosen] }}>
            {text}
          </Link>
        </Button>
      ) : (
        <Button disabled>{text}</Button>
      )}
    </>
  );
}

function ProjectChoice({ chosen, onChoose }: { chosen: string | undefined; onChoose: (id: string | undefined) => void }) {
  const projects = useQuery(projectsQuery({ limit: 100 }));
  const options = [["", "All projects"] as const, ...(projects.data?.items ?? []).map((project) => [project.id, project.name] as const)];
  return <Select aria-label="Project" options={options} value={chosen ?? ""} onChange={(event) => onChoose(event.target.value || undefined)} className="sm:w-52" />;
}
