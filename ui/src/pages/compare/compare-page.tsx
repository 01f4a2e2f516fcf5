/** Comparison of runs, and the list from which they are chosen. */
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { GitCompareArrows } from "lucide-react";
import { lazy, Suspense, useMemo, useState } from "react";
import { comparedCurvesQuery, comparisonQuery, FEWEST, isResting, jobsQuery, MOST } from "@/api/jobs";
import { ApiProblem } from "@/api/problem";
import type { Curves, Difference, Job, Outcome } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { PageSteps } from "@/components/data-table";
import { SearchBox } from "@/components/input";
import { EmptyState, Loaded, Skeleton, SkeletonRows } from "@/components/loaded";
import { JobTable, useSelection } from "@/pages/jobs/job-table";
import { NewJobLink } from "@/pages/jobs/new-job-link";
import { PageHeader, usePageTitle } from "@/shell/page";
import { counted } from "@/text/numbers";
import { COMPARED_SERIES, labelsOf } from "./compared";
import { ConfigTable, FiguresTable, RunLegend } from "./side-tables";

const ComparedCharts = lazy(() => import("./compared-charts").then((module) => ({ default: module.ComparedCharts })));

const route = getRouteApi("/app/compare");

export function ComparePage() {
  const { job: chosen = [], pick } = route.useSearch();
  const navigate = useNavigate({ from: "/compare" });
  usePageTitle("Compare runs");
  const show = (job: string[], change: { pick?: true } = {}) => void navigate({ search: { job: job.length > 0 ? job : undefined, ...change } });

  if (chosen.length < FEWEST || pick) {
    return (
      <>
        <PageHeader title="Compare runs" note={`Choose ${FEWEST} to ${MOST} runs to see their curves in the same charts and their configs side by side.`} />
        <RunPicker chosen={chosen} onCompare={show} />
      </>
    );
  }
  return (
    <>
      <PageHeader title="Compare runs" note={`${counted(chosen.length, "run")} side by side.`}>
        <Button onClick={() => show(chosen, { pick: true })}>Choose runs</Button>
      </PageHeader>
      <Compared ids={chosen} onShow={show} />
    </>
  );
}

function Compared({ ids, onShow }: { ids: string[]; onShow: (ids: string[]) => void }) {
  const comparison = useQuery(comparisonQuery(ids));
  const live = comparison.data?.jobs.some((job) => !isResting(job.status)) ?? false;
  const curves = useQuery(comparedCurvesQuery(ids, COMPARED_SERIES, live));
  if (comparison.error instanceof ApiProblem && comparison.error.status === 404) {
    return (
      <Card>
        <EmptyState icon={GitCompareArrows} title="One of these runs no longer exists." action={<Button onClick={() => onShow([])}>Choose runs</Button>}>
          The run was deleted, or it belongs to another user.
        </EmptyState>
      </Card>
    );
  }
  return (
    <Loaded query={comparison} skeleton={<ComparisonSkeleton />}>
      {({ jobs, differences, outcomes }) => <SideBySide jobs={jobs} differences={differences} outcomes={outcomes} curves={curves} onShow={onShow} />}
    </Loaded>
  );
}

type SideBySideProps = { jobs: Job[]; differences: Difference[]; outcomes: Outcome[]; curves: UseQueryResult<Curves[]>; onShow: (ids: string[]) => void };

function SideBySide({ jobs, differences, outcomes, curves, onShow }: SideBySideProps) {
  const names = jobs.map((job) => job.name).join("\n");
  // Names seldom change, while the jobs are new with every step of one that runs.
  const labels = useMemo(() => labelsOf(names.split("\n").map((name) => ({ name }))), [names]);
  return (
    <div className="grid gap-3.5">
      <RunLegend jobs={jobs} labels={labels} onRemove={jobs.length > FEWEST ? (id) => onShow(jobs.map((job) => job.id).filter((other) => other !== id)) : undefined} />
      <Loaded query={curves} skeleton={<ChartsSkeleton />}>
        {(loaded) => (
          <Suspense fallback={<ChartsSkeleton />}>
            <ComparedCharts labels={labels} curves={loaded} />
          </Suspense>
        )}
      </Loaded>
      <FiguresTable labels={labels} outcomes={outcomes} />
      <ConfigTable jobs={jobs} labels={labels} differences={differences} />
    </div>
  );
}

function ComparisonSkeleton() {
  return (
    <div className="grid gap-3.5">
      <Skeleton className="h-16 rounded-card" />
      <ChartsSkeleton />
      <Skeleton className="h-60 rounded-card" />
    </div>
  );
}

const ChartsSkeleton = () => (
  <div className="grid gap-3.5 lg:grid-cols-2">
    <Skeleton className="h-80 rounded-card" />
    <Skeleton className="h-80 rounded-card" />
  </div>
);

const PAGE = 20;

export function RunPicker({ chosen, onCompare }: { chosen: string[]; onCompare: (ids: string[]) => void }) {
  const selection = useSelection(chosen);
  const [search, setSearch] = useState("");
  const [page, setPage] = useState(1);
  const jobs = useQuery(jobsQuery({ search, limit: PAGE, offset: (page - 1) * PAGE }));
  const nothingYet = jobs.data?.total === 0 && search === "";
  return (
    <Card>
      {!nothingYet && (
        <div className="mb-3.5 flex flex-wrap items-center gap-2.5 [&>div]:mb-0 [&>div]:max-sm:w-full">
          <SearchBox
            label="Search runs"
            text={search}
            busy={jobs.isPlaceholderData}
            onSearch={(text) => {
              setSearch(text);
              setPage(1);
            }}
          />
          <span role="status" className="ml-auto text-sm text-dim">
            {selection.chosen.length} selected
          </span>
          <Button variant="primary" disabled={selection.chosen.length < FEWEST} onClick={() => onCompare([...selection.chosen])}>
            Compare
          </Button>
        </div>
      )}
      <Loaded query={jobs} skeleton={<SkeletonRows rows={5} className="h-11" />}>
        {({ items, total }) =>
          nothingYet ? (
            <EmptyState icon={GitCompareArrows} title="No runs to compare yet." action={<NewJobLink />}>
              Train the same model twice with one setting changed, then compare the results here.
            </EmptyState>
          ) : (
            <>
              <JobTable label="Runs" jobs={items} selection={selection} />
              <PageSteps page={page} pageSize={PAGE} total={total} onTurn={setPage} />
            </>
          )
        }
      </Loaded>
    </Card>
  );
}
