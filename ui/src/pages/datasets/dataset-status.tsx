import type { Dataset } from "@/api/types";
import { Badge } from "@/components/notice";
import { useUploadOf } from "@/uploads/upload-store";

const TEXTS: Record<Dataset["status"], string> = {
  uploading: "upload incomplete",
  fetching: "downloading",
  parsing: "reading documents",
  generating: "writing questions",
  inspecting: "inspecting",
  ready: "ready",
  failed: "failed",
};

export function DatasetStatusBadge({ dataset, className }: { dataset: Dataset; className?: string }) {
  const upload = useUploadOf(dataset.id);
  const unclear = dataset.status === "ready" && dataset.report?.mapping === null;
  if (unclear) {
    return (
      <Badge tone="violet" className={className}>
        format unknown
      </Badge>
    );
  }
  const tone = { uploading: upload ? "teal" : "bad", fetching: "teal", parsing: "teal", generating: "teal", inspecting: "teal", ready: "good", failed: "bad" } as const;
  return (
    <Badge tone={tone[dataset.status]} className={className}>
      {dataset.status === "uploading" && upload ? "uploading" : TEXTS[dataset.status]}
    </Badge>
  );
}
