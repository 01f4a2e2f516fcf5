import type { ReactNode } from "react";
import type { Dataset } from "@/api/types";
import { Card } from "@/components/card";
import { Notice } from "@/components/notice";
import { toastFailure } from "@/components/toasts";
import { ProgressBar } from "@/pages/jobs/progress-bar";
import { bytesText } from "@/text/numbers";
import { continueDataset } from "@/uploads/dataset-files";
import { useUploadOf } from "@/uploads/upload-store";
import { ChooseFiles } from "./choose-files";

/** What stands between a dataset and its use: bytes that are missing, an inspection under way, a failure. */
export function ImportStatus({ dataset }: { dataset: Dataset }) {
  const upload = useUploadOf(dataset.id);
  if (dataset.status === "ready") return null;
  if (dataset.status === "failed") {
    return (
      <Notice tone="bad" role="alert" className="mb-3.5">
        <p className="font-[560]">This cannot be used.</p>
        <p className="mt-0.5 break-words">{dataset.problem}</p>
      </Notice>
    );
  }
  if (dataset.status === "uploading") return upload ? <Waiting text="The file is on its way. What is in it shows here once it has arrived." /> : <Stopped dataset={dataset} />;
  const fetching = dataset.status === "fetching";
  return (
    <Waiting text={fetching ? "The server is fetching it." : "The rows are being looked at: columns, format, lengths, problems, duplicates. You can leave this page."}>
      <ProgressBar value={dataset.progress} label={fetching ? "Fetched" : "Looked at"} className="mt-2.5" />
    </Waiting>
  );
}

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
      toastFailure(`This file has ${bytesText(file.size)}, the one that was begun ${bytesText(dataset.size)}. Choose the same file, or delete this and upload anew.`);
      return;
    }
    continueDataset(dataset, file);
  }
  return (
    <Notice tone="attention" className="mb-3.5 flex flex-wrap items-center justify-between gap-3">
      <p className="min-w-0 flex-1 basis-72">
        The upload stopped after {bytesText(dataset.received)} of {bytesText(dataset.size)}. Choose “{dataset.filename}” again to send the rest, unless it is being sent from another window.
      </p>
      <ChooseFiles text="Continue the upload" variant="primary" onChoose={go} />
    </Notice>
  );
}
