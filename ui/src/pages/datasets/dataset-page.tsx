/** One dataset: its import, its report and its actions. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Download, Pencil, SearchX, Sparkles, Trash2 } from "lucide-react";
import { type ReactNode, useState } from "react";
import { changeDataset, convertedAddress, datasetQuery, deleteDataset } from "@/api/datasets";
import { isGone } from "@/api/problem";
import { DatasetChange } from "@/api/request-fields";
import type { Dataset, DatasetReport } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { ProgressBar, StatSummary } from "@/components/figures";
import { ChooseFiles } from "@/uploads/file-input";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { toast, toastFailure } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { textRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { PageHeader, PagePending, usePageTitle } from "@/shell/page";
import { ItemNotFound } from "@/shell/page-error";
import { bytesText, countText } from "@/text/numbers";
import { continueDataset } from "@/uploads/chosen-files";
import { cancelUpload, useUploadOf } from "@/uploads/upload-store";
import { DatasetStatusBadge } from "./dataset-status";
import { DocumentsCard } from "./documents-card";
import { EncodingForm, FormatCard } from "./format-card";
import { PreviewCard } from "./preview-card";
import { QuestionsCard } from "./questions-card";
import { ColumnsCard, DuplicatesCard, LengthsCard, ProblemsCard } from "./report-cards";

const route = getRouteApi("/app/datasets/$datasetId");

export function DatasetPage() {
  const { datasetId } = route.useParams();
  const dataset = useQuery(datasetQuery(datasetId));
  usePageTitle(dataset.data?.name ?? "Dataset");
  if (isGone(dataset.error)) {
    return (
      <ItemNotFound icon={SearchX} title="There is no dataset at this address." link={<Link to="/datasets">Show all datasets</Link>}>
        The dataset was deleted, or it belongs to another user.
      </ItemNotFound>
    );
  }
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
            <span className="min-w-0 wrap-anywhere">{dataset.name}</span>
            <DatasetStatusBadge dataset={dataset} className="tracking-normal" />
          </span>
        }
        note={dataset.name === dataset.filename ? undefined : dataset.filename}
      >
        <DatasetActions dataset={dataset} usable={report !== null && report.examples > 0} />
      </PageHeader>
      <ImportStatus dataset={dataset} />
      {dataset.documents && dataset.documents.files > 0 && <DocumentsCard dataset={dataset} documents={dataset.documents} />}
      {dataset.questions && <QuestionsCard dataset={dataset} questions={dataset.questions} />}
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
          {unclear && report.columns.length > 0 && <ColumnsCard report={report} />}
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
    ...(lengths ? [lengths.unit === "tokens" ? { name: "Tokens", value: countText(lengths.total) } : { name: "Tokens, estimated", value: countText(lengths.total / CHARACTERS_PER_TOKEN) }] : []),
    { name: "Skipped rows", value: countText(report.problems.rows_refused) },
    ...(report.duplicates ? [{ name: "Duplicates", value: countText(report.duplicates.repeated) }] : []),
    { name: "Size", value: bytesText(dataset.size) },
  ];
}

function DatasetActions({ dataset, usable }: { dataset: Dataset; usable: boolean }) {
  return (
    <>
      <RenameButton dataset={dataset} />
      <DeleteDatasetButton dataset={dataset} />
      {usable && (
        <>
          <Button asChild>
            <a href={convertedAddress(dataset.id)} download title="All usable rows as chat messages, one JSON object per line">
              <Download aria-hidden />
              Download as JSONL
            </a>
          </Button>
          <Button asChild variant="primary">
            <Link to="/finetune" search={{ dataset: dataset.id }}>
              <Sparkles aria-hidden />
              Fine-tune on this dataset
            </Link>
          </Button>
        </>
      )}
    </>
  );
}

const rules = z.object({ name: textRule(DatasetChange.name).min(1, "Enter a name.") });

function RenameButton({ dataset }: { dataset: Dataset }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <Pencil aria-hidden />
        Rename
      </Button>
      <Dialog open={open} onOpenChange={setOpen} title="Rename dataset" className="max-w-sm">
        <RenameForm dataset={dataset} onDone={() => setOpen(false)} />
      </Dialog>
    </>
  );
}

function RenameForm({ dataset, onDone }: { dataset: Dataset; onDone: () => void }) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { name: dataset.name },
    submit: async ({ name }) => {
      await changeDataset(dataset.id, { name });
      onDone();
    },
  });
  return (
    <ApiForm label="Rename dataset" failure={failure} onSubmit={onSubmit}>
      <TextField label="Name" autoComplete="off" {...field("name")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onDone}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Rename
        </Button>
      </div>
    </ApiForm>
  );
}

function DeleteDatasetButton({ dataset }: { dataset: Dataset }) {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  const upload = useUploadOf(dataset.id);

  async function remove() {
    // Cancelling an upload removes what has arrived of it.
    if (upload) await cancelUpload(upload.id);
    else await deleteDataset(dataset.id);
    toast(`Dataset “${dataset.name}” deleted.`);
    await navigate({ to: "/datasets" });
  }

  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <Trash2 aria-hidden />
        Delete
      </Button>
      <ConfirmDialog open={open} onOpenChange={setOpen} title={`Delete “${dataset.name}”?`} action="Delete dataset" onConfirm={remove}>
        This permanently deletes the file from this server. Jobs that were trained on the dataset are kept.
      </ConfirmDialog>
    </>
  );
}

/** Whether all bytes of a text file are here, which another encoding may make readable. */
const hasText = ({ filename, size, received, source }: Dataset) => (source === "upload" || source === "hub") && size > 0 && received === size && !filename.toLowerCase().endsWith(".parquet");

/** What stands between a dataset and its use: bytes that are missing, an inspection under way, a failure. */
function ImportStatus({ dataset }: { dataset: Dataset }) {
  const upload = useUploadOf(dataset.id);
  if (dataset.status === "ready") return null;
  if (dataset.status === "failed") {
    return (
      <Notice tone="bad" role="alert" className="mb-3.5">
        <p className="font-[560]">This dataset cannot be used.</p>
        <p className="mt-0.5 wrap-anywhere">{dataset.problem}</p>
        {hasText(dataset) && <EncodingForm dataset={dataset} />}
      </Notice>
    );
  }
  if (dataset.status === "uploading") return upload ? <Waiting text="The file is being uploaded. The report appears here after the upload." /> : <Stopped dataset={dataset} />;
  // Its own card says how far it is.
  if (dataset.status === "generating") return null;
  const { text, label } = WAITING[dataset.status];
  return (
    <Waiting text={`${text} You can leave this page.`}>
      <ProgressBar value={dataset.progress} label={label} className="mt-2.5" />
    </Waiting>
  );
}

const WAITING = {
  fetching: { text: "The server is downloading the dataset.", label: "Download progress" },
  parsing: { text: "The server is reading the documents and cutting them to passages.", label: "Documents read" },
  inspecting: { text: "The server is inspecting the rows: columns, format, lengths, problems, duplicates.", label: "Inspection progress" },
} as const;

function Waiting({ text, children }: { text: string; children?: ReactNode }) {
  return (
    <Card className="mb-3.5">
      <p role="status" className="text-dim">
        {text}
      </p>
      {children}
    </Card>
  );
}

/** The browser that sent it is gone; the bytes that arrived are not. */
function Stopped({ dataset }: { dataset: Dataset }) {
  function go([file]: File[]) {
    if (!file) return;
    if (file.size !== dataset.size) {
      toastFailure(`This file has ${bytesText(file.size)}, but the file of the interrupted upload has ${bytesText(dataset.size)}. Choose the same file, or delete this dataset and upload the file again.`);
      return;
    }
    continueDataset(dataset, file);
  }
  return (
    <Notice tone="attention" className="mb-3.5 flex flex-wrap items-center justify-between gap-3">
      <p className="min-w-0 flex-1 basis-72">
        The upload stopped after {bytesText(dataset.received)} of {bytesText(dataset.size)}. Choose “{dataset.filename}” again to continue, unless another browser window is uploading it.
      </p>
      <ChooseFiles text="Resume upload" variant="primary" onChoose={go} />
    </Notice>
  );
}
