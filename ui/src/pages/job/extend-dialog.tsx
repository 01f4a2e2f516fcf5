import { readSummary } from "@/api/job-summary";
import { extendJob } from "@/api/jobs";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm } from "@/forms/api-form";
import { wholeNumber } from "@/forms/number-rules";
import { TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { countText } from "@/text/numbers";

const rules = z.object({
  maxSteps: wholeNumber({ least: 1, most: 1e9 }),
  epochs: wholeNumber({ least: 1, most: 1e6 }),
});

export function ExtendDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const { step } = readSummary(job);
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title="Train further"
      description={`It took ${countText(step ?? 0)} steps. Say how long it should train in all; the learning rate schedule is stretched to the new length.`}
    >
      <ExtendForm job={job} onClose={onClose} />
    </Dialog>
  );
}

function ExtendForm({ job, onClose }: { job: Job; onClose: () => void }) {
  const byStep = typeof job.config.max_steps === "number";
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { maxSteps: "", epochs: "" },
    submit: async (values) => {
      await extendJob(job.id, values);
      toast("The job is queued again and goes on from its last checkpoint.");
      onClose();
    },
  });
  const steps = <TextField key="steps" label="Steps in all" inputMode="numeric" autoComplete="off" {...field("maxSteps")} />;
  const epochs = (
    <TextField key="epochs" label="Epochs in all" inputMode="numeric" autoComplete="off" help={`It has ${String(job.config.epochs)} now.`} {...field("epochs")} />
  );
  return (
    <ApiForm label="Train further" failure={failure} onSubmit={onSubmit}>
      <div className="grid gap-4 sm:grid-cols-2">{byStep ? [steps, epochs] : [epochs, steps]}</div>
      <p className="text-xs text-faint">One of the two is enough; with both, training ends at whichever comes first.</p>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Train further
        </Button>
      </div>
    </ApiForm>
  );
}
