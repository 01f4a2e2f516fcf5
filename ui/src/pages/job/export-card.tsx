import { PackageOpen } from "lucide-react";
import type { Job } from "@/api/types";
import { ExportDialog } from "./export-dialog";
import { ExportResult } from "./export-result";
import { TaskCard } from "./task-card";
import { methodOf } from "./tuning";

/** The model in the forms that others read. */
export function ExportCard({ job }: { job: Job }) {
  return (
    <TaskCard
      job={job}
      kind="export"
      anchor="export"
      title="Export"
      icon={PackageOpen}
      action="Export"
      possible={job.status === "completed" && job.hasModel}
      invitation={{ title: "Take the model elsewhere.", text: "As one merged model, as an adapter, or as GGUF; to download, or pushed to the Hugging Face Hub." }}
      dialog={(close) => <ExportDialog subject={{ jobId: job.id, projectId: job.projectId, method: methodOf(job), checkpoint: null }} onClose={close} />}
    >
      {(task) => <ExportResult task={task} />}
    </TaskCard>
  );
}
