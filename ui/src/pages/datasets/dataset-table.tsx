import { Link } from "@tanstack/react-router";
import type { Dataset } from "@/api/types";
import { Button } from "@/components/button";
import { type Column, DataTable } from "@/components/data-table";
import { TimeAgo } from "@/components/time-ago";
import { ProgressBar } from "@/pages/jobs/progress-bar";
import { bytesText, countText } from "@/text/numbers";
import { DatasetStatusBadge } from "./dataset-status";
import { FORMAT_NAMES } from "./format-words";

const columns: Column<Dataset>[] = [
  { header: "Name", lead: true, cell: (dataset) => <NameCell dataset={dataset} /> },
  { header: "Format", cell: (dataset) => formatText(dataset) },
  { header: "Rows", end: true, cell: ({ report }) => figure(report?.rows) },
  { header: "Size", end: true, cell: (dataset) => (dataset.size > 0 ? bytesText(dataset.size) : null) },
  { header: "Status", cell: (dataset) => <StatusCell dataset={dataset} /> },
  { header: "Added", end: true, cell: (dataset) => <span className="text-dim"><TimeAgo at={dataset.createdAt} /></span> },
  { header: "Action", end: true, quiet: true, cell: (dataset) => <FinetuneLink dataset={dataset} /> },
];

const figure = (value: number | undefined) => (value === undefined ? null : countText(value));

function formatText({ report }: Dataset) {
  const mapping = report?.mapping;
  return mapping ? FORMAT_NAMES[mapping.format] : null;
}

export function DatasetTable({ datasets }: { datasets: Dataset[] }) {
  return <DataTable label="Datasets" columns={columns} rows={datasets} rowKey={(dataset) => dataset.id} />;
}

function NameCell({ dataset }: { dataset: Dataset }) {
  return (
    <div className="min-w-0 md:max-w-md">
      <Link
        to="/datasets/$datasetId"
        params={{ datasetId: dataset.id }}
        className="font-[570] break-words underline-offset-3 hover:text-violet-soft hover:underline"
      >
        {dataset.name}
      </Link>
      {dataset.name !== dataset.filename && <p className="line-clamp-1 text-sm break-all text-dim">{dataset.filename}</p>}
    </div>
  );
}

function StatusCell({ dataset }: { dataset: Dataset }) {
  const moving = (dataset.status === "inspecting" || dataset.status === "fetching") && dataset.progress !== null;
  return (
    <div className="inline-grid min-w-28 gap-1.5">
      <span>
        <DatasetStatusBadge dataset={dataset} />
      </span>
      {moving && <ProgressBar value={dataset.progress} label={`Progress of ${dataset.name}`} />}
    </div>
  );
}

function FinetuneLink({ dataset }: { dataset: Dataset }) {
  if (dataset.status !== "ready" || !dataset.report?.mapping) return null;
  return (
    <Button asChild size="small">
      <Link to="/finetune" search={{ dataset: dataset.id }} aria-label={`Fine-tune with ${dataset.name}`}>
        Fine-tune
      </Link>
    </Button>
  );
}
