import { useQuery } from "@tanstack/react-query";
import { useWatch } from "react-hook-form";
import { hubTokenQuery } from "@/api/models";
import { startExport } from "@/api/tasks";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm } from "@/forms/api-form";
import { ChoiceCards } from "@/forms/choice-cards";
import { exportBody, exportRules } from "@/forms/task-rules";
import { SelectField, TextField, TextareaField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { countText } from "@/text/numbers";
import type { Subject } from "./checkpoint-actions";

type ExportDialogProps = { subject: Subject; onClose: () => void; onStarted?: () => void };

const FORMS = [
  ["merged", "Merged", "a whole model, for transformers and vLLM"],
  ["adapter", "Adapter", "only what was learned, for PEFT"],
  ["gguf", "GGUF", "one file, for llama.cpp and Ollama"],
] as const;

const DTYPES = [
  ["bf16", "bf16"],
  ["fp16", "fp16"],
  ["fp32", "fp32"],
] as const;

export function ExportDialog({ subject, onClose, onStarted = onClose }: ExportDialogProps) {
  const { checkpoint } = subject;
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={checkpoint ? `Export step ${countText(checkpoint.step)}` : "Export the model"}
      description="When it is written, prompts are answered by the model before and after, and differences are shown."
    >
      <ExportForm subject={subject} onClose={onClose} onStarted={onStarted} />
    </Dialog>
  );
}

function ExportForm({ subject, onClose, onStarted }: Required<ExportDialogProps>) {
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: exportRules,
    defaultValues: { form: "merged" as const, dtype: "bf16" as const, prompts: "", push: false, repository: "", isPrivate: true },
    submit: async (values) => {
      await startExport(subject.jobId, exportBody(values, subject.checkpoint?.id ?? null));
      toast("The export is queued.");
      onStarted();
    },
  });
  const push = useWatch({ control: form.control, name: "push" });
  const forms = subject.method === "full" ? FORMS.filter(([name]) => name !== "adapter") : FORMS;
  return (
    <ApiForm label="Export" failure={failure} onSubmit={onSubmit}>
      <ChoiceCards label="Form" options={forms} {...field("form")} />
      <SelectField label="Numbers" options={DTYPES} help="fp32 keeps every digit and needs twice the room." {...field("dtype")} />
      <TextareaField label="Prompts to replay" optional rows={2} help="One on each line; without any, some of the data’s own are taken." {...field("prompts")} />
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
              Only I can see it
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
  if (token.data?.present === false) return "There is no token for the hub yet. Store one under Settings, API tokens, first.";
  return "It is pushed when it is written and checked, with the token you stored.";
}
