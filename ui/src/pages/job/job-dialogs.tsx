/** Dialogs of a job: train longer, change settings, share. */
import { useQuery } from "@tanstack/react-query";
import { Link2 } from "lucide-react";
import { useState } from "react";
import { changeSettings, createShare, extendJob, revokeShare, sharesQuery } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import { Extension, LiveSettings as SettingsSchema } from "@/api/request-fields";
import type { Job, LiveSettings, NewShare } from "@/api/types";
import { Button, CopyButton } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { type ConfigPath, CONFIG_SCHEMA, valueAt } from "@/forms/job-fields";
import { numberRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { counted } from "@/text/numbers";
import { queuedText } from "./resume-words";

const extendRules = z.object({
  max_steps: numberRule(Extension.max_steps),
  epochs: numberRule(Extension.epochs),
});

export function ExtendDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const { step } = job.summary;
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title="Train further"
      description={`The job has trained for ${counted(step ?? 0, "step")}. Enter the new total; the learning rate schedule is stretched to the new length.`}
    >
      <ExtendForm job={job} onClose={onClose} />
    </Dialog>
  );
}

function ExtendForm({ job, onClose }: { job: Job; onClose: () => void }) {
  const byStep = typeof job.config?.max_steps === "number";
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: extendRules,
    defaultValues: { max_steps: "", epochs: "" },
    submit: async (values) => {
      toast(await queuedText(await extendJob(job.id, values)));
      onClose();
    },
  });
  const steps = <TextField key="steps" label="Total steps" inputMode="numeric" autoComplete="off" {...field("max_steps")} />;
  const epochs = (
    <TextField key="epochs" label="Total epochs" inputMode="numeric" autoComplete="off" help={`Current total: ${String(job.config?.epochs)}.`} {...field("epochs")} />
  );
  return (
    <ApiForm label="Train further" failure={failure} onSubmit={onSubmit}>
      <div className="grid gap-4 sm:grid-cols-2">{byStep ? [steps, epochs] : [epochs, steps]}</div>
      <p className="text-xs text-faint">Fill in one of the two fields. If you fill in both, training ends at the total that is reached first.</p>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Train further
        </Button>
      </div>
    </ApiForm>
  );
}

const settingsRules = z.object({
  learning_rate: numberRule(SettingsSchema.learning_rate),
  weight_decay: numberRule(SettingsSchema.weight_decay),
  clip_norm: numberRule(SettingsSchema.clip_norm),
  eval_every_steps: numberRule(SettingsSchema.eval_every_steps),
  save_every_steps: numberRule(SettingsSchema.save_every_steps),
});

type SettingsValues = z.input<typeof settingsRules>;

/** The field of the config that a setting changes. */
const CHANGES = {
  learning_rate: "learning_rate",
  weight_decay: "optimizer.weight_decay",
  clip_norm: "optimizer.clip_norm",
  eval_every_steps: "eval.every_steps",
  save_every_steps: "checkpoint.every_steps",
} as const satisfies Record<keyof SettingsValues, ConfigPath>;

/** What is in force: the config, and what was changed since. */
function inForce({ config, settings }: Job): SettingsValues {
  const text = (name: keyof SettingsValues, changed: unknown) => String(changed ?? valueAt(config, CHANGES[name]) ?? "");
  return {
    learning_rate: text("learning_rate", settings.learning_rate),
    weight_decay: text("weight_decay", settings.weight_decay),
    clip_norm: text("clip_norm", settings.clip_norm),
    eval_every_steps: text("eval_every_steps", settings.eval_every_steps),
    save_every_steps: text("save_every_steps", settings.save_every_steps),
  };
}

type SettingsDialogProps = { job: Job; onClose: () => void };

export function SettingsDialog({ job, onClose }: SettingsDialogProps) {
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title="Settings" description="Changes take effect at the next step. The charts mark that step.">
      <SettingsForm job={job} onClose={onClose} />
    </Dialog>
  );
}

function SettingsForm({ job, onClose }: SettingsDialogProps) {
  // As the form was filled in: somebody else may change a setting while it is open.
  const [before] = useState(() => inForce(job));
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: settingsRules,
    defaultValues: before,
    submit: async (values) => {
      const known = settingsRules.parse(before);
      const names = Object.keys(values) as (keyof LiveSettings & keyof typeof values)[];
      const changed = names.filter((name) => values[name] !== null && values[name] !== known[name]);
      if (changed.length > 0) {
        await changeSettings(job.id, Object.fromEntries(changed.map((name) => [name, values[name]])));
        toast("Settings sent to the run.");
      }
      onClose();
    },
  });
  const setting = (name: keyof SettingsValues, help?: string) => {
    const { title = name, description, empty, type } = CONFIG_SCHEMA[CHANGES[name]];
    return <TextField label={title} inputMode={type === "integer" ? "numeric" : "decimal"} autoComplete="off" placeholder={empty} help={help ?? description} {...field(name)} />;
  };
  return (
    <ApiForm label="Settings" failure={failure} onSubmit={onSubmit}>
      {setting("learning_rate", "The learning rate schedule continues, scaled to this peak value.")}
      <div className="grid gap-4 sm:grid-cols-2">
        {setting("weight_decay")}
        {setting("clip_norm")}
        {setting("eval_every_steps")}
        {setting("save_every_steps")}
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

/** Links that show this job to anybody who has them, until they are revoked. */
export function ShareDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const shares = useQuery(sharesQuery(job.id));
  const [created, setCreated] = useState<NewShare | null>(null);
  const [pending, setPending] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);

  async function attempt(action: () => Promise<void>) {
    setPending(true);
    setFailure(null);
    try {
      await action();
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }

  const revoke = (id: string) =>
    attempt(async () => {
      await revokeShare(job.id, id);
      setCreated((shown) => (shown?.share.id === id ? null : shown));
      toast("The link is revoked.");
    });

  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title="Share" description="Anyone with the link can see this run’s metrics, charts and config without an account. The link is read-only and shows no files.">
      <div className="grid gap-4">
        {failure && (
          <Notice tone="bad" role="alert">
            {failure}
          </Notice>
        )}
        {created ? (
          <>
            <Notice tone="attention" role="status">
              Copy the link now. It is not shown again.
            </Notice>
            <div className="flex items-center gap-3 rounded-control border border-line-strong bg-rail py-2 pr-2 pl-3">
              <code className="min-w-0 flex-1 font-mono text-xs break-all select-all">{created.link}</code>
              <CopyButton text={created.link} label="Copy the link" />
            </div>
          </>
        ) : (
          <Button variant="primary" pending={pending} className="justify-self-start" onClick={() => void attempt(async () => setCreated(await createShare(job.id)))}>
            <Link2 aria-hidden />
            Create a link
          </Button>
        )}
        <Loaded query={shares} skeleton={<SkeletonRows rows={1} />}>
          {({ items }) =>
            items.length === 0 ? null : (
              <section>
                <h3 className="mb-1 text-xs text-dim">Active links</h3>
                <ul>
                  {items.map((share) => (
                    <li key={share.id} className="flex items-center justify-between gap-3 border-t border-line py-2">
                      <span>
                        Created <TimeAgo at={share.created_at} />
                      </span>
                      <Button size="small" disabled={pending} onClick={() => void revoke(share.id)}>
                        Revoke
                      </Button>
                    </li>
                  ))}
                </ul>
              </section>
            )
          }
        </Loaded>
      </div>
    </Dialog>
  );
}
