/** Exports of a job: the form, and the result with its files and its replay check. */
import { useQuery } from "@tanstack/react-query";
import { Download, ExternalLink, PackageOpen } from "lucide-react";
import { useWatch } from "react-hook-form";
import { archiveAddress, modelFileAddress, modelFilesQuery } from "@/api/jobs";
import { hubTokenQuery } from "@/api/models";
import { HubPush, NewExport as ExportSchema } from "@/api/request-fields";
import { exportFormsQuery, startExport } from "@/api/tasks";
import type { ExportResult as Exported, Job, NewExport } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { ChoiceCards, SelectField, TextareaField, TextField } from "@/forms/field";
import { optionsOf } from "@/forms/schema-fields";
import { z } from "@/forms/zod";
import { bytesText, countText, metricText } from "@/text/numbers";
import type { Subject } from "./checkpoints-card";
import { linesOf, Marked } from "./evaluation-card";
import { FoldedFiles } from "./result-cards";
import { TaskCard } from "./task-card";
import { TuneFurtherButton } from "./tune-further";
import { methodOf } from "./tuning-card";

const REPOSITORY = new RegExp(HubPush.repository.pattern);

const exportRules = z
  .object({
    form: z.enum(ExportSchema.form.enum),
    dtype: z.enum(ExportSchema.dtype.enum),
    prompts: z.string(),
    push: z.boolean(),
    repository: z.string().trim(),
    isPrivate: z.boolean(),
  })
  .superRefine(({ push, repository }, context) => {
    if (push && !REPOSITORY.test(repository)) context.addIssue({ code: "custom", path: ["repository"], message: "Enter the repository as owner/name." });
  });

type ExportValues = z.output<typeof exportRules>;

const exportBody = (values: ExportValues, { checkpoint, averageWith = [] }: Subject): NewExport => ({
  checkpoint_id: checkpoint?.id ?? null,
  average_with: averageWith.map(({ id }) => id),
  form: values.form,
  dtype: values.dtype,
  prompts: linesOf(values.prompts),
  hub: values.push ? { repository: values.repository, private: values.isPrivate } : null,
});

/** The model in the forms that others read. */
export function ExportCard({ job }: { job: Job }) {
  return (
    <TaskCard
      job={job}
      kind="export"
      title="Export"
      icon={PackageOpen}
      action="Export"
      possible={job.status === "completed" && job.has_model}
      invitation={{ title: "No export yet.", text: "Export a merged model, an adapter or a GGUF file. Download the export, or push it to the Hugging Face Hub." }}
      dialog={(close) => <ExportDialog subject={{ jobId: job.id, projectId: job.project_id, method: methodOf(job), checkpoint: null }} onClose={close} />}
    >
      {(task) => <ExportResult task={task} />}
    </TaskCard>
  );
}

type ExportDialogProps = { subject: Subject; onClose: () => void; onStarted?: () => void };

const FORM_CHOICES = optionsOf(ExportSchema.form) ?? [];
const DTYPES = (optionsOf(ExportSchema.dtype) ?? []).map(([value, text]) => [value, text] as const);

export function ExportDialog({ subject, onClose, onStarted = onClose }: ExportDialogProps) {
  const { checkpoint, averageWith = [] } = subject;
  const steps = [checkpoint, ...averageWith].flatMap((each) => (each ? [countText(each.step)] : []));
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={steps.length > 1 ? `Average and export ${steps.length} checkpoints` : checkpoint ? `Export step ${steps[0]}` : "Export the model"}
      description={`${steps.length > 1 ? `Exports the mean of the weights, or of the adapters, of steps ${steps.join(", ")}. ` : ""}After the export, the original model and the exported model answer the same prompts. Different answers are shown.`}
    >
      <ExportForm subject={subject} onClose={onClose} onStarted={onStarted} />
    </Dialog>
  );
}

function ExportForm({ subject, onClose, onStarted }: Required<ExportDialogProps>) {
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: exportRules,
    defaultValues: { form: ExportSchema.form.default, dtype: ExportSchema.dtype.default, prompts: "", push: false, repository: "", isPrivate: HubPush.private.default },
    submit: async (values) => {
      await startExport(subject.jobId, exportBody(values, subject));
      toast("The export is queued.");
      onStarted();
    },
  });
  const push = useWatch({ control: form.control, name: "push" });
  const offered = useQuery(exportFormsQuery(subject.jobId, subject.checkpoint?.id ?? null));
  const refused = (offered.data?.items ?? []).filter(({ available }) => !available);
  const forms = FORM_CHOICES.filter(([name]) => !refused.some((each) => each.form === name) && !(name === "adapter" && subject.method === "full"));
  const gguf = refused.find((each) => each.form === "gguf");
  return (
    <ApiForm label="Export" failure={failure} onSubmit={onSubmit}>
      <ChoiceCards label="Format" options={forms} help={gguf ? `GGUF is not offered. ${gguf.reason ?? ""}` : undefined} {...field("form")} />
      <SelectField label="Precision" options={DTYPES} help={ExportSchema.dtype.description} {...field("dtype")} />
      <TextareaField label="Test prompts" optional rows={2} help="Enter one prompt per line. If empty, prompts from the dataset are used." {...field("prompts")} />
      <div className="grid gap-3">
        <label className="flex items-center gap-2">
          <input type="checkbox" {...form.register("push")} className="size-4 accent-violet" />
          Push to the Hugging Face Hub
        </label>
        {push && (
          <>
            <TextField label="Repository" placeholder="owner/name" autoComplete="off" help={<TokenNote />} {...field("repository")} />
            <label className="flex items-center gap-2 text-dim">
              <input type="checkbox" {...form.register("isPrivate")} className="size-4 accent-violet" />
              Private repository
            </label>
          </>
        )}
      </div>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Export
        </Button>
      </div>
    </ApiForm>
  );
}

function TokenNote() {
  const token = useQuery(hubTokenQuery);
  if (token.data?.present === false) return "No Hugging Face token is stored. Add one first under Settings, Tokens.";
  return "The export is pushed with your stored Hugging Face token, after the test prompts have run.";
}

const FORM_NAMES: Record<Exported["form"], string> = { merged: "Merged model", adapter: "Adapter", gguf: "GGUF" };

/** What an export wrote, whether it still answers the same, and where to get it. */
export function ExportResult({ task }: { task: Job }) {
  if (task.result?.kind !== "export") return null;
  const exported = task.result;
  return (
    <div className="grid grid-cols-1 gap-3.5">
      <p>
        <b className="font-[570]">{FORM_NAMES[exported.form]}</b>
        <span className="text-dim">
          {exported.dtype && `, ${exported.dtype}`}
          {exported.bytes !== null && `, ${bytesText(exported.bytes)}`}
        </span>
        {exported.hub && <HubLink hub={exported.hub} />}
      </p>
      <ReplayCheck exported={exported} />
      <Files task={task} />
      {exported.form === "merged" && <TuneFurtherButton jobId={task.id} />}
      {exported.notes.map((note) => (
        <p key={note} className="text-xs text-dim">
          {note}
        </p>
      ))}
    </div>
  );
}

function HubLink({ hub: { repository, url } }: { hub: NonNullable<Exported["hub"]> }) {
  if (url === null) return <span className="text-dim">, pushed to {repository}</span>;
  return (
    <a href={url} target="_blank" rel="noreferrer" className="ml-3 inline-flex items-center gap-1 text-sm text-violet-soft underline-offset-3 hover:underline">
      {repository}
      <ExternalLink aria-hidden className="size-3.5" />
    </a>
  );
}

function ReplayCheck({ exported: { same, of, replay, largest_logit_difference: largestDifference } }: { exported: Exported }) {
  if (of === 0) return <Notice tone="attention">No prompt was tested. It is unknown whether the exported model gives the same answers.</Notice>;
  const changed = replay.filter((one) => !one.same);
  const logits = largestDifference === null ? "" : ` Largest logit difference: ${metricText(largestDifference)}.`;
  if (same === of) {
    return (
      <Notice tone="good">
        <b className="mr-2 font-[570]">Same answers.</b>
        <span className="text-dim">
          {same} of {of} test prompts gave the same answer.{logits}
        </span>
      </Notice>
    );
  }
  return (
    <div className="grid grid-cols-1 gap-2.5">
      <Notice tone="attention" role="alert">
        <b className="mr-2 font-[570]">Answers differ.</b>
        <span className="text-dim">
          {same} of {of} test prompts gave the same answer.{logits} Lower precision can cause this; fp32 changes the weights least. Read the differences before you use the export.
        </span>
      </Notice>
      <ol className="divide-y divide-line rounded-card border border-line">
        {changed.map((one, index) => (
          // Two prompts may read the same.
          // oxlint-disable-next-line react/no-array-index-key
          <Changed key={index} replayed={one} />
        ))}
      </ol>
    </div>
  );
}

function Changed({ replayed: { prompt, before, after } }: { replayed: Exported["replay"][number] }) {
  return (
    <li className="px-3.5 py-1.5 text-sm">
      <details>
        <summary className="cursor-pointer truncate font-[540]">{prompt}</summary>
        <p className="mt-1.5 wrap-anywhere whitespace-pre-wrap text-dim">
          <span className="mr-2 text-2xs text-faint">original</span>
          {before}
        </p>
        <p className="wrap-anywhere whitespace-pre-wrap">
          <span className="mr-2 text-2xs text-faint">exported</span>
          <Marked before={before} after={after} />
        </p>
      </details>
    </li>
  );
}

function Files({ task }: { task: Job }) {
  const files = useQuery({ ...modelFilesQuery(task.id), enabled: task.has_model });
  if (!task.has_model) return <p className="text-dim">The exported files are no longer on this server.</p>;
  return (
    <Loaded query={files} skeleton={<SkeletonRows rows={2} />}>
      {({ items, archive_size: archiveSize }) => (
        <div>
          <FoldedFiles label="Exported files" files={items} addressOf={(path) => modelFileAddress(task.id, path)} />
          <Button asChild className="mt-3" variant="primary">
            <a href={archiveAddress(task.id)} download>
              <Download aria-hidden />
              Download the export, {bytesText(archiveSize)}
            </a>
          </Button>
        </div>
      )}
    </Loaded>
  );
}
