/** Dialogs for one checkpoint: branch from it with changed settings, go back to it, delete it. */
import { useNavigate } from "@tanstack/react-router";
import { branchFromCheckpoint, deleteCheckpoint, resumeFromCheckpoint } from "@/api/jobs";
import { NewBranch as BranchSchema } from "@/api/request-fields";
import { Button } from "@/components/button";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { numberRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { countText } from "@/text/numbers";

type CheckpointDialogProps = { jobId: string; checkpoint: { id: string; step: number }; onClose: () => void };

const branchRules = z.object({
  name: z.string().trim().max(BranchSchema.name.maxLength),
  learning_rate: numberRule(BranchSchema.learning_rate),
  weight_decay: numberRule(BranchSchema.weight_decay),
  epochs: numberRule(BranchSchema.epochs),
  max_steps: numberRule(BranchSchema.max_steps),
});

export function BranchDialog({ jobId, checkpoint, onClose }: CheckpointDialogProps) {
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={`Branch from step ${countText(checkpoint.step)}`}
      description="Starts a new job that continues from this checkpoint. Empty fields keep the settings of this job, which stays as it is."
    >
      <BranchForm jobId={jobId} checkpoint={checkpoint} onClose={onClose} />
    </Dialog>
  );
}

function BranchForm({ jobId, checkpoint, onClose }: CheckpointDialogProps) {
  const navigate = useNavigate();
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: branchRules,
    defaultValues: { name: "", learning_rate: "", weight_decay: "", epochs: "", max_steps: "" },
    submit: async ({ name, ...changes }) => {
      const job = await branchFromCheckpoint(jobId, checkpoint.id, { ...changes, name: name === "" ? null : name });
      toast(`Job “${job.name}” is queued.`);
      onClose();
      await navigate({ to: "/projects/$projectId/jobs/$jobId", params: { projectId: job.project_id, jobId: job.id } });
    },
  });
  return (
    <ApiForm label="Branch" failure={failure} onSubmit={onSubmit}>
      <TextField label="Job name" optional autoComplete="off" {...field("name")} />
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Learning rate" optional inputMode="decimal" autoComplete="off" {...field("learning_rate")} />
        <TextField label="Weight decay" optional inputMode="decimal" autoComplete="off" {...field("weight_decay")} />
        <TextField label="Total epochs" optional inputMode="numeric" autoComplete="off" {...field("epochs")} />
        <TextField label="Total steps" optional inputMode="numeric" autoComplete="off" {...field("max_steps")} />
      </div>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Start branch
        </Button>
      </div>
    </ApiForm>
  );
}

export function ResumeFromDialog({ jobId, checkpoint, onClose }: CheckpointDialogProps) {
  return (
    <ConfirmDialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={`Resume from step ${countText(checkpoint.step)}?`}
      action="Resume from here"
      onConfirm={async () => {
        await resumeFromCheckpoint(jobId, checkpoint.id);
        toast(`The job is queued. It resumes from step ${countText(checkpoint.step)}.`);
      }}
    >
      Checkpoints of later steps are deleted. To keep them, branch from this checkpoint instead.
    </ConfirmDialog>
  );
}

export function DeleteCheckpointDialog({ jobId, checkpoint, onClose }: CheckpointDialogProps) {
  return (
    <ConfirmDialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={`Delete the checkpoint of step ${countText(checkpoint.step)}?`}
      action="Delete checkpoint"
      onConfirm={async () => {
        await deleteCheckpoint(jobId, checkpoint.id);
        toast(`Checkpoint of step ${countText(checkpoint.step)} deleted.`);
      }}
    >
      Its files are permanently removed from this server.
    </ConfirmDialog>
  );
}
