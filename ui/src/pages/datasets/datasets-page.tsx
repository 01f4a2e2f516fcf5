/** The list of datasets, with upload and download from Hugging Face. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { CloudDownload, FileUp, SearchX } from "lucide-react";
import { useState } from "react";
import { datasetsQuery, fetchDataset } from "@/api/datasets";
import { DatasetFromHub } from "@/api/request-fields";
import type { Dataset } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { type Column, DataTable, PageSteps } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { ProgressBar } from "@/components/figures";
import { ChooseFiles, DropArea } from "@/uploads/file-input";
import { SearchBox } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { hubDatasetId, textOrNull } from "@/forms/rules";
import { z } from "@/forms/zod";
import { HubTokenNote } from "@/pages/models/add-model-dialog";
import { PageHeader, usePageTitle } from "@/shell/page";
import { bytesText, countText } from "@/text/numbers";
import { sendDatasets } from "@/uploads/chosen-files";
import { DatasetStatusBadge } from "./dataset-status";
import { DocumentsButton } from "./documents-dialog";
import { FORMAT_NAMES } from "./format-card";

const route = getRouteApi("/app/datasets");
const PAGE = 20;

export function DatasetsPage() {
  usePageTitle("Datasets");
  const { search = "", page = 1 } = route.useSearch();
  const navigate = useNavigate({ from: "/datasets" });
  const datasets = useQuery(datasetsQuery({ search, limit: PAGE, offset: (page - 1) * PAGE }));
  const nothingYet = datasets.data?.total === 0 && search === "";

  const onSearch = (text: string) => void navigate({ search: { search: text || undefined }, replace: true });
  const turn = (to: number) => void navigate({ search: (kept) => ({ ...kept, page: to > 1 ? to : undefined }) });

  async function send(files: File[]) {
    const begun = await sendDatasets(files);
    const [only] = begun;
    // One new dataset is opened at once; several stay in the list.
    if (only && begun.length === 1) await navigate({ to: "/datasets/$datasetId", params: { datasetId: only.id } });
  }

  return (
    <DropArea onDrop={(files) => void send(files)}>
      {/* Always the same element: a file that is chosen while the list loads belongs to the button that was pressed. */}
      <PageHeader title="Datasets">
        <DocumentsButton />
        <HubDatasetButton />
        <ChooseFiles text="Upload files" several variant="primary" onChoose={(files) => void send(files)} />
      </PageHeader>
      <Card>
        {!nothingYet && <SearchBox label="Search datasets" text={search} onSearch={onSearch} busy={datasets.isPlaceholderData} />}
        <Loaded query={datasets} skeleton={<SkeletonRows rows={5} className="h-11" />}>
          {({ items, total }) => {
            if (nothingYet) {
              return (
                <div className="rounded-card border-2 border-dashed border-line-strong">
                  <EmptyState icon={FileUp} title="Drop a dataset file here.">
                    Supported files: .jsonl, .json, .csv, .tsv, .txt and .parquet, of any size; text files also as .gz, .zst or .zip. Documents (PDF, Word, Markdown, HTML) become training text. The format (chat messages, prompt and completion, plain text) is detected automatically, and a preview shows what a model learns from each row.
                  </EmptyState>
                </div>
              );
            }
            if (items.length === 0) {
              return (
                <EmptyState
                  icon={SearchX}
                  title={search ? `No dataset matches “${search}”.` : "This page of the list is empty."}
                  action={<Button onClick={() => onSearch("")}>Show all datasets</Button>}
                />
              );
            }
            return (
              <>
                <DatasetTable datasets={items} />
                <PageSteps page={page} pageSize={PAGE} total={total} onTurn={turn} />
              </>
            );
          }}
        </Loaded>
      </Card>
    </DropArea>
  );
}

const columns: Column<Dataset>[] = [
  { header: "Name", lead: true, cell: (dataset) => <NameCell dataset={dataset} /> },
  { header: "Format", cell: (dataset) => formatText(dataset) },
  { header: "Rows", end: true, cell: ({ report }) => figure(report?.rows) },
  { header: "Size", end: true, cell: (dataset) => (dataset.size > 0 ? bytesText(dataset.size) : null) },
  { header: "Status", cell: (dataset) => <StatusCell dataset={dataset} /> },
  { header: "Added", end: true, cell: (dataset) => <span className="text-dim"><TimeAgo at={dataset.created_at} /></span> },
  { header: "Action", end: true, quiet: true, cell: (dataset) => <FinetuneLink dataset={dataset} /> },
];

const figure = (value: number | undefined) => (value === undefined ? null : countText(value));

function formatText({ report }: Dataset) {
  const mapping = report?.mapping;
  return mapping ? FORMAT_NAMES[mapping.format] : null;
}

function DatasetTable({ datasets }: { datasets: Dataset[] }) {
  return <DataTable label="Datasets" columns={columns} rows={datasets} rowKey={(dataset) => dataset.id} />;
}

function NameCell({ dataset }: { dataset: Dataset }) {
  return (
    <div className="min-w-0 md:max-w-md">
      <Link
        to="/datasets/$datasetId"
        params={{ datasetId: dataset.id }}
        className="font-[570] wrap-anywhere underline-offset-3 hover:text-violet-soft hover:underline"
      >
        {dataset.name}
      </Link>
      {dataset.name !== dataset.filename && <p className="line-clamp-1 text-sm break-all text-dim">{dataset.filename}</p>}
    </div>
  );
}

function StatusCell({ dataset }: { dataset: Dataset }) {
  const moving = ["inspecting", "fetching", "parsing", "generating"].includes(dataset.status) && dataset.progress !== null;
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
      <Link to="/finetune" search={{ dataset: dataset.id }} aria-label={`Fine-tune on ${dataset.name}`}>
        Fine-tune
      </Link>
    </Button>
  );
}

const rules = z.object({
  repository: hubDatasetId,
  config: textOrNull(DatasetFromHub.config),
  split: textOrNull(DatasetFromHub.split),
  revision: textOrNull(DatasetFromHub.revision),
});

function HubDatasetButton() {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <CloudDownload aria-hidden />
        From Hugging Face
      </Button>
      <Dialog open={open} onOpenChange={setOpen} title="Download a dataset from Hugging Face" description="The server downloads the dataset and inspects it like an uploaded file.">
        <HubDatasetForm onDone={() => setOpen(false)} />
      </Dialog>
    </>
  );
}

function HubDatasetForm({ onDone }: { onDone: () => void }) {
  const navigate = useNavigate();
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { repository: "", config: "", split: "", revision: "" },
    submit: async (values) => {
      const dataset = await fetchDataset(values);
      onDone();
      toast(`The server is downloading “${dataset.name}”.`);
      await navigate({ to: "/datasets/$datasetId", params: { datasetId: dataset.id } });
    },
  });
  return (
    <ApiForm label="Download a dataset from Hugging Face" failure={failure} onSubmit={onSubmit}>
      <TextField label="Dataset ID" placeholder="tatsu-lab/alpaca" autoComplete="off" spellCheck={false} {...field("repository")} />
      <div className="grid gap-4 sm:grid-cols-3">
        <TextField label="Configuration" optional placeholder="default" autoComplete="off" spellCheck={false} {...field("config")} />
        <TextField label="Split" optional placeholder="train" autoComplete="off" spellCheck={false} {...field("split")} />
        <TextField label="Revision" optional placeholder="main" autoComplete="off" spellCheck={false} {...field("revision")} />
      </div>
      <HubTokenNote />
      <div className="flex justify-end gap-2">
        <Button onClick={onDone}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Download
        </Button>
      </div>
    </ApiForm>
  );
}
