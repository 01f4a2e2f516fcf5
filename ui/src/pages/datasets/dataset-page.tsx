import { useQuery } from "@tanstack/react-query";
import { Link, getRouteApi } from "@tanstack/react-router";
import { SearchX } from "lucide-react";
import { datasetQuery } from "@/api/datasets";
import { ApiProblem } from "@/api/problem";
import type { Dataset, DatasetReport } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { StatSummary } from "@/components/stat-summary";
import { PageHeader } from "@/shell/page-header";
import { PagePending } from "@/shell/page-pending";
import { usePageTitle } from "@/shell/use-page-title";
import { bytesText, countText } from "@/text/numbers";
import { ImportStatus } from "./import-status";
import { ColumnsCard } from "./columns-card";
import { DatasetActions } from "./dataset-actions";
import { DatasetStatusBadge } from "./dataset-status";
import { DuplicatesCard } from "./duplicates-card";
import { FormatCard } from "./format-card";
import { LengthsCard } from "./lengths-card";
import { PreviewCard } from "./preview-card";
import { ProblemsCard } from "./problems-card";

const route = getRouteApi("/app/datasets/$datasetId");

export function DatasetPage() {
  const { datasetId } = route.useParams();
  const dataset = useQuery(datasetQuery(datasetId));
  usePageTitle(dataset.data?.name ?? "Dataset");
  if (dataset.error instanceof ApiProblem && dataset.error.status === 404) return <DatasetMissing />;
  return (
    <Loaded query={dataset} skeleton={<PagePending />}>
      {(loaded) => <LoadedDataset key={loaded.id} dataset={loaded} />}
    </Loaded>
  );
}

function LoadedDataset({ dataset }: { dataset: Dataset }) {
  const report = dataset.status === "ready" ? dataset.report : null;
  return (
    <>
      <PageHeader
        crumbs={
          <Link to="/datasets" className="underline-offset-3 hover:text-text hover:underline">
            Datasets
          </Link>
        }
        title={
          <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
            <span className="min-w-0 break-words">{dataset.name}</span>
            <DatasetStatusBadge dataset={dataset} className="tracking-normal" />
          </span>
        }
        note={dataset.name === dataset.filename ? undefined : dataset.filename}
      >
        <DatasetActions dataset={dataset} usable={report !== null && report.examples > 0} />
      </PageHeader>
      <ImportStatus dataset={dataset} />
      {report && <Inspected dataset={dataset} report={report} />}
    </>
  );
}

function Inspected({ dataset, report }: { dataset: Dataset; report: DatasetReport }) {
  const unclear = report.mapping === null;
  return (
    <>
      <StatSummary label="Overview" stats={stats(dataset, report)} />
      {report.notes.length > 0 && (
        <Notice tone="attention" className="mt-3.5 grid gap-1">
          {report.notes.map((note) => (
            <p key={note}>{note}</p>
          ))}
        </Notice>
      )}
      <div className="mt-3.5 grid items-start gap-3.5 lg:grid-cols-12">
        <div className={`grid gap-3.5 ${unclear ? "lg:col-span-7" : "lg:col-span-4"}`}>
          <FormatCard key={`${dataset.format}`} dataset={dataset} report={report} />
          {!unclear && report.lengths && <LengthsCard lengths={report.lengths} />}
          {!unclear && <ColumnsCard report={report} />}
          {report.duplicates && report.duplicates.repeated > 0 && <DuplicatesCard duplicates={report.duplicates} />}
        </div>
        <div className={`grid min-w-0 gap-3.5 ${unclear ? "lg:col-span-5" : "lg:col-span-8"}`}>
          {unclear && <ColumnsCard report={report} />}
          {!unclear && <PreviewCard dataset={dataset} report={report} />}
          {!unclear && <ProblemsCard dataset={dataset} report={report} />}
        </div>
        {unclear && (
          <div className="min-w-0 lg:col-span-12">
            <PreviewCard dataset={dataset} report={report} />
          </div>
        )}
      </div>
    </>
  );
}

/** Of English in most tokenizers. The preview counts exactly, once a model is chosen. */
const CHARACTERS_PER_TOKEN = 4;

function stats(dataset: Dataset, report: DatasetReport) {
  const lengths = report.lengths;
  return [
    { name: "Rows", value: countText(report.rows) },
    { name: "Usable examples", value: countText(report.examples) },
    ...(lengths ? [lengths.unit === "tokens" ? { name: "Tokens", value: countText(lengths.total) } : { name: "Characters", value: countText(lengths.total), unit: `≈ ${countText(lengths.total / CHARACTERS_PER_TOKEN)} tokens` }] : []),
    { name: "Rows left out", value: countText(report.problems.rowsRefused) },
    ...(report.duplicates ? [{ name: "Duplicates", value: countText(report.duplicates.repeated) }] : []),
    { name: "Size", value: bytesText(dataset.size) },
  ];
}

function DatasetMissing() {
  return (
    <Card>
      <EmptyState
        wholePage
        icon={SearchX}
        title="There is no dataset at this address."
        action={
          <Button asChild variant="primary">
            <Link to="/datasets">Show all datasets</Link>
          </Button>
        }
      >
        It was deleted, or it belongs to somebody else.
      </EmptyState>
    </Card>
  );
}
