/** Where a project's training data lies: an address, a path, or a dataset that is uploaded here. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ComponentProps, useState } from "react";
import { serverQuery } from "@/api/account";
import { datasetQuery } from "@/api/datasets";
import { isGone, sentenceOf } from "@/api/problem";
import { ProgressBar } from "@/components/figures";
import { sendDatasets } from "@/uploads/chosen-files";
import { ChooseFiles, DropArea } from "@/uploads/file-input";
import { useUploadOf } from "@/uploads/upload-store";
import { TextField } from "./field";
import { DATASET, datasetIdOf } from "./job-form";

type TrainingDataFieldProps = Pick<ComponentProps<typeof TextField>, "registration" | "error"> & {
  value: string;
  /** The path of the dataset that a chosen file becomes. The upload goes on while the form is filled in. */
  onUploaded: (path: string) => void;
};

export function TrainingDataField({ value, onUploaded, ...bound }: TrainingDataFieldProps) {
  const [sending, setSending] = useState(false);
  const id = datasetIdOf(value.trim());

  async function send(files: File[]) {
    setSending(true);
    // The note tells it; on a phone, a toast would cover the button of the form.
    const [dataset] = await sendDatasets(files.slice(0, 1), { announce: false });
    setSending(false);
    if (dataset) onUploaded(DATASET + dataset.id);
  }

  return (
    <DropArea onDrop={(files) => void send(files)} text="Drop to upload as the training data">
      <div className="grid gap-2">
        <TextField label="Training data" optional placeholder="s3://bucket/folder/" autoComplete="off" spellCheck={false} help={id ? <DatasetNote id={id} /> : <DataPathHelp />} {...bound} />
        <div aria-busy={sending}>
          <ChooseFiles size="small" text={id ? "Upload another file" : "Upload a file"} onChoose={(files) => void send(files)} />
        </div>
      </div>
    </DropArea>
  );
}

/** The dataset behind the address, and how far its upload is. */
export function DatasetNote({ id }: { id: string }) {
  const dataset = useQuery(datasetQuery(id));
  const upload = useUploadOf(id);
  if (!dataset.data) return isGone(dataset.error) ? "This dataset does not exist, or it belongs to another user." : dataset.error ? sentenceOf(dataset.error) : "Looking up the dataset…";
  return (
    <span className="grid gap-1.5">
      <span>
        Dataset{" "}
        <Link to="/datasets/$datasetId" params={{ datasetId: id }} className="text-text underline underline-offset-3">
          {dataset.data.name}
        </Link>
        , {upload ? "uploading" : STATUS[dataset.data.status]}
      </span>
      {upload && <ProgressBar value={upload.size > 0 ? upload.sent / upload.size : 0} label={`Upload of ${upload.name}`} />}
    </span>
  );
}

const STATUS = { uploading: "uploading", fetching: "downloading", parsing: "being read", generating: "being written", inspecting: "being inspected", ready: "ready", failed: "not readable" } as const;

const DataPathHelp = () => (
  <>
    A URL that starts with s3://, gs://, hf:// or https://, a file that you upload
    <DataFolders before=", or a path on the server inside " otherwise=", or a file on the server" />.
  </>
);

/** Where this server may read, after the words before; `otherwise` where it may read nowhere. */
export function DataFolders({ before, otherwise = null }: { before: string; otherwise?: string | null }) {
  const { data: server } = useQuery(serverQuery);
  const folders = server ? [server.uploads_folder, ...server.data_roots].filter((folder) => folder !== null) : [];
  if (folders.length === 0) return otherwise;
  return (
    <>
      {before}
      {folders.map((folder, index) => (
        <span key={folder}>
          {index > 0 && " or "}
          <code className="font-mono text-[11px] break-all text-dim">{folder}</code>
        </span>
      ))}
    </>
  );
}
