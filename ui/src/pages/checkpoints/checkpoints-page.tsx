import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Save, SearchX } from "lucide-react";
import { allCheckpointsQuery } from "@/api/tasks";
import type { CheckpointOfJob } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { type Column, DataTable, PageSteps } from "@/components/data-table";
import { SearchBox, Select } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Badge } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { useProjectOptions } from "@/forms/project-options";
import { CheckpointActions, evalLossText } from "@/pages/job/checkpoints-card";
import { methodText } from "@/pages/job/tuning-card";
import { NewJobLink } from "@/pages/jobs/new-job-link";
import type { CheckpointsSearch } from "@/shell/address";
import { PageHeader, usePageTitle } from "@/shell/page";
import { trainingTime } from "@/text/checkpoint-details";
import { bytesText, countText, numberOf } from "@/text/numbers";

const route = getRouteApi("/app/checkpoints");
const PAGE = 25;

const columns: Column<CheckpointOfJob>[] = [
  { header: "Checkpoint", lead: true, cell: (checkpoint) => <Name checkpoint={checkpoint} /> },
  { header: "Base model", cell: ({ base_model: baseModel, method }) => <Pair first={baseModel ?? "none (trained from scratch)"} second={methodText(method)} /> },
  { header: "Dataset", cell: ({ dataset_name: datasetName }) => datasetName },
  { header: "Eval loss", end: true, cell: evalLossText },
  { header: "Training time", end: true, cell: ({ details }) => trainingTime(details) },
  { header: "Tokens/s", end: true, cell: ({ tokens_per_second: tokensPerSecond }) => (tokensPerSecond === null ? null : countText(numberOf(tokensPerSecond))) },
  { header: "Size", end: true, cell: ({ size }) => (size === null ? null : bytesText(size)) },
  { header: "Saved", end: true, cell: ({ saved_at: savedAt }) => <span className="text-dim"><TimeAgo at={savedAt} /></span> },
  {
    header: "Actions",
    quiet: true,
    end: true,
    cell: ({ id, step, job_id: jobId, job_status: status, project_id: projectId, method, details }) => <CheckpointActions onPage={false} details={details} subject={{ jobId, projectId, method, status, checkpoint: { id, step } }} />,
  },
];

/** What all runs have saved, newest first. */
export function CheckpointsPage() {
  usePageTitle("Checkpoints");
  const { search = "", page = 1, project, best } = route.useSearch();
  const navigate = useNavigate({ from: "/checkpoints" });
  const checkpoints = useQuery(allCheckpointsQuery({ search, project_id: project, best, limit: PAGE, offset: (page - 1) * PAGE }));
  const filtered = search !== "" || project !== undefined || best === true;
  const nothingYet = checkpoints.data?.total === 0 && !filtered;
  const filter = (change: CheckpointsSearch) => void navigate({ search: (kept) => ({ ...kept, ...change, page: undefined }), replace: true });
  const turn = (to: number) => void navigate({ search: (kept) => ({ ...kept, page: to > 1 ? to : undefined }) });

  return (
    <>
      <PageHeader title="Checkpoints" note="Saved states of your runs. Open them in the playground, evaluate them or export them." />
      <Card>
        {!nothingYet && (
          <div className="mb-3.5 flex flex-wrap items-center gap-2.5 [&>div]:mb-0 [&>div]:max-sm:w-full">
            <SearchBox label="Search runs" text={search} busy={checkpoints.isPlaceholderData} onSearch={(text) => filter({ search: text || undefined })} />
            <ProjectChoice chosen={project} onChoose={(id) => filter({ project: id })} />
            <label className="flex items-center gap-2 text-sm text-dim">
              <input type="checkbox" checked={best === true} onChange={(event) => filter({ best: event.target.checked || undefined })} className="size-4 accent-violet" />
              Best checkpoint of each run only
            </label>
          </div>
        )}
        <Loaded query={checkpoints} skeleton={<SkeletonRows rows={6} className="h-11" />}>
          {({ items, total }) => {
            if (nothingYet) {
              return (
                <EmptyState icon={Save} title="No checkpoints yet." action={<NewJobLink />}>
                  A run saves checkpoints while it trains. You can resume from a checkpoint, open it in the playground or export it.
                </EmptyState>
              );
            }
            if (items.length === 0 && total > 0) {
              return <EmptyState icon={SearchX} title="This page of the list is empty." action={<Button onClick={() => filter({})}>Show the first page</Button>} />;
            }
            if (items.length === 0) {
              return <EmptyState icon={SearchX} title="No checkpoints match." action={<Button onClick={() => void navigate({ search: {}, replace: true })}>Show all checkpoints</Button>} />;
            }
            return (
              <>
                <DataTable label="Checkpoints" columns={columns} rows={items} rowKey={(checkpoint) => checkpoint.id} />
                <PageSteps page={page} pageSize={PAGE} total={total} onTurn={turn} />
              </>
            );
          }}
        </Loaded>
      </Card>
    </>
  );
}

function Name({ checkpoint: { job_id: jobId, job_name: jobName, project_id: projectId, project_name: projectName, step, best } }: { checkpoint: CheckpointOfJob }) {
  return (
    <div className="min-w-0 md:w-56">
      <span className="flex flex-wrap items-center gap-x-2">
        <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId, jobId }} className="min-w-0 font-[570] wrap-anywhere underline-offset-3 hover:text-violet-soft hover:underline">
          {jobName}
        </Link>
        {best && <Badge tone="good">best</Badge>}
      </span>
      <p className="line-clamp-1 text-sm break-all text-dim">
        step {countText(step)} · {projectName}
      </p>
    </div>
  );
}

function Pair({ first, second }: { first: string; second: string | null }) {
  return (
    <span className="min-w-0 md:block md:max-w-44">
      <span className="wrap-anywhere">{first}</span>
      {second && <span className="text-sm text-dim max-md:ml-1.5 md:block">{second}</span>}
    </span>
  );
}

function ProjectChoice({ chosen, onChoose }: { chosen: string | undefined; onChoose: (id: string | undefined) => void }) {
  const options = [["", "All projects"] as const, ...useProjectOptions(chosen).options];
  return <Select aria-label="Project" options={options} value={chosen ?? ""} onChange={(event) => onChoose(event.target.value || undefined)} className="sm:w-52" />;
}
