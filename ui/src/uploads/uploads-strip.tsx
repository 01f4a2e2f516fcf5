import { Link } from "@tanstack/react-router";
import { Upload as UploadIcon } from "lucide-react";
import { sentenceOf } from "@/api/problem";
import { Button } from "@/components/button";
import { toast, toastFailure } from "@/components/toasts";
import { ProgressBar } from "@/components/figures";
import { bytesText } from "@/text/numbers";
import { type Upload, cancelUpload, retryUpload, useUploads } from "./upload-store";

/** Uploads under way, above whatever page is open. */
export function UploadsStrip() {
  const uploads = useUploads();
  if (uploads.length === 0) return null;
  return (
    <section aria-label="Uploads" className="mb-5 grid gap-2">
      {uploads.map((upload) => (
        <UploadLine key={upload.id} upload={upload} />
      ))}
    </section>
  );
}

function UploadLine({ upload }: { upload: Upload }) {
  const share = upload.size === 0 ? 0 : upload.sent / upload.size;
  const failed = upload.state === "failed";

  async function cancel() {
    try {
      await cancelUpload(upload.id);
      toast(`The upload of “${upload.name}” was cancelled.`);
    } catch (error) {
      toastFailure(`The upload of “${upload.name}” was stopped, but the uploaded part could not be deleted. ${sentenceOf(error)}`);
    }
  }

  return (
    <div className={`rounded-card border px-3.5 py-2.5 ${failed ? "border-danger/40 bg-danger/8" : "border-line-strong bg-raised"}`}>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1.5">
        <UploadIcon aria-hidden className="size-4 shrink-0 text-violet-soft" />
        <span className="min-w-0 flex-1 basis-40 truncate font-[540]">
          <Target upload={upload} />
        </span>
        <span className="text-xs text-dim tabular-nums">
          {bytesText(upload.sent)} of {bytesText(upload.size)}
        </span>
        {failed && (
          <Button size="small" onClick={() => retryUpload(upload.id)}>
            Try again
          </Button>
        )}
        <Button variant="ghost" size="small" aria-label={`Cancel the upload of ${upload.name}`} onClick={() => void cancel()}>
          Cancel
        </Button>
      </div>
      <ProgressBar value={share} label={`Upload of ${upload.name}`} className="mt-1.5" />
      {upload.state !== "sending" && (
        <p role={failed ? "alert" : "status"} className={`mt-1.5 text-xs ${failed ? "text-danger-soft" : "text-warning"}`}>
          {failed ? upload.problem : "The connection is lost. The upload continues automatically when the connection is back."}
        </p>
      )}
    </div>
  );
}

function Target({ upload: { target, name } }: { upload: Upload }) {
  const linkClass = "underline-offset-3 hover:text-violet-soft hover:underline";
  if (target.kind === "model") {
    return (
      <Link to="/models" className={linkClass}>
        {name}
      </Link>
    );
  }
  return (
    <Link to="/datasets/$datasetId" params={{ datasetId: target.id }} className={linkClass}>
      {name}
    </Link>
  );
}
