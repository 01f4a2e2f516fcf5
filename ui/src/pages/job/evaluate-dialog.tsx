import { startEvaluation } from "@/api/tasks";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm } from "@/forms/api-form";
import { evaluationBody, evaluationRules } from "@/forms/task-rules";
import { TextField, TextareaField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { countText } from "@/text/numbers";
import type { Subject } from "./checkpoint-actions";

type EvaluateDialogProps = { subject: Subject; onClose: () => void; onStarted?: () => void };

export function EvaluateDialog({ subject, onClose, onStarted = onClose }: EvaluateDialogProps) {
  const { checkpoint } = subject;
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={checkpoint ? `Evaluate step ${countText(checkpoint.step)}` : "Evaluate the model"}
      description="Perplexity on the held-out part of the data, before the tuning and after it. Your own prompts are answered by both."
    >
      <EvaluateForm subject={subject} onClose={onClose} onStarted={onStarted} />
    </Dialog>
  );
}

function EvaluateForm({ subject, onClose, onStarted }: Required<EvaluateDialogProps>) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: evaluationRules,
    defaultValues: { prompts: "", maxNewTokens: "128", maxBatches: "20", lmEvalTasks: "" },
    submit: async (values) => {
      await startEvaluation(subject.jobId, evaluationBody(values, subject.checkpoint?.id ?? null));
      toast("The evaluation is queued.");
      onStarted();
    },
  });
  return (
    <ApiForm label="Evaluate" failure={failure} onSubmit={onSubmit}>
      <TextareaField label="Prompts" optional rows={4} help="One on each line." {...field("prompts")} />
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Longest answer, in tokens" inputMode="numeric" autoComplete="off" {...field("maxNewTokens")} />
        <TextField label="Batches of held-out data" inputMode="numeric" autoComplete="off" {...field("maxBatches")} />
      </div>
      <TextField label="lm-eval tasks" optional autoComplete="off" placeholder="hellaswag arc_easy" help="Benchmarks of the lm-eval package, where the server has it; they can take hours." {...field("lmEvalTasks")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Evaluate
        </Button>
      </div>
    </ApiForm>
  );
}
