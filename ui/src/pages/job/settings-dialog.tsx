import { changeSettings } from "@/api/jobs";
import type { Job, LiveSettings } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm } from "@/forms/api-form";
import { decimal, wholeNumber } from "@/forms/number-rules";
import { TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";

const rules = z.object({
  learningRate: decimal({ above: 0, most: 10 }),
  weightDecay: decimal({ least: 0, most: 1000 }),
  clipNorm: decimal({ least: 0, most: 1e6 }),
  evalEverySteps: wholeNumber({ least: 1, most: 1e9 }),
  saveEverySteps: wholeNumber({ least: 1, most: 1e9 }),
});

type Values = z.input<typeof rules>;

const text = (changed: unknown, configured: unknown) => String(changed ?? configured ?? "");

/** What is in force: the config, and what was changed since. */
function inForce({ config, settings }: Job): Values {
  const optimizer = config.optimizer as Record<string, unknown> | undefined;
  const evaluation = config.eval as Record<string, unknown> | undefined;
  const checkpoint = config.checkpoint as Record<string, unknown> | undefined;
  return {
    learningRate: text(settings.learning_rate, config.learning_rate),
    weightDecay: text(settings.weight_decay, optimizer?.weight_decay),
    clipNorm: text(settings.clip_norm, optimizer?.clip_norm),
    evalEverySteps: text(settings.eval_every_steps, evaluation?.every_steps),
    saveEverySteps: text(settings.save_every_steps, checkpoint?.every_steps),
  };
}

type SettingsDialogProps = { job: Job; onClose: () => void };

export function SettingsDialog({ job, onClose }: SettingsDialogProps) {
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title="Settings" description="They take effect at the next step, and the charts mark where.">
      <SettingsForm job={job} onClose={onClose} />
    </Dialog>
  );
}

function SettingsForm({ job, onClose }: SettingsDialogProps) {
  const before = inForce(job);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: before,
    submit: async (values) => {
      const known = rules.parse(before);
      const names = Object.keys(values) as (keyof LiveSettings & keyof typeof values)[];
      const changed = names.filter((name) => values[name] !== null && values[name] !== known[name]);
      if (changed.length > 0) {
        await changeSettings(job.id, Object.fromEntries(changed.map((name) => [name, values[name]])));
        toast("Settings sent to the run.");
      }
      onClose();
    },
  });
  return (
    <ApiForm label="Settings" failure={failure} onSubmit={onSubmit}>
      <TextField label="Learning rate" inputMode="decimal" autoComplete="off" help="The schedule goes on, scaled to this peak." {...field("learningRate")} />
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Weight decay" inputMode="decimal" autoComplete="off" {...field("weightDecay")} />
        <TextField label="Clip gradients at norm" inputMode="decimal" autoComplete="off" help="0 does not clip." {...field("clipNorm")} />
        <TextField label="Evaluate every … steps" inputMode="numeric" autoComplete="off" placeholder="end of epoch" {...field("evalEverySteps")} />
        <TextField label="Save every … steps" inputMode="numeric" autoComplete="off" placeholder="end of epoch" {...field("saveEverySteps")} />
      </div>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Apply
        </Button>
      </div>
    </ApiForm>
  );
}
