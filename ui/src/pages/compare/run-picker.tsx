import { useQuery } from "@tanstack/react-query";
import { GitCompareArrows } from "lucide-react";
import { useState } from "react";
import { FEWEST } from "@/api/compare";
import { jobsQuery } from "@/api/jobs";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { PageSteps } from "@/components/page-steps";
import { SkeletonRows } from "@/components/skeleton";
import { JobTable } from "@/pages/jobs/job-table";
import { NewJobLink } from "@/pages/jobs/new-job-link";
import { SearchBox } from "@/pages/projects/search-box";
import { useSelection } from "./use-selection";

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
            {selection.chosen.length} chosen
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
              Train the same model twice with one thing changed, and see here what it did.
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
