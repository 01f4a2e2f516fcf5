import { Gauge } from "lucide-react";
import type { Job } from "@/api/types";
import { EvaluateDialog } from "./evaluate-dialog";
import { EvaluationResult } from "./evaluation-result";
import { TaskCard } from "./task-card";
import { methodOf } from "./tuning";

/** What the training changed, measured. */
export function EvaluationCard({ job }: { job: Job }) {
  return (
    <TaskCard
      job={job}
      kind="evaluate"
      anchor="evaluation"
      title="Evaluation"
      icon={Gauge}
      action="Evaluate"
      possible={job.status === "completed" && job.hasModel}
      invitation={{ title: "What did the training change?", text: "Measure perplexity on held-out data before and after, and let both models answer your own prompts." }}
      dialog={(close) => <EvaluateDialog subject={{ jobId: job.id, projectId: job.projectId, method: methodOf(job), checkpoint: null }} onClose={close} />}
    >
      {(task) => <EvaluationResult task={task} />}
    </TaskCard>
  );
}
