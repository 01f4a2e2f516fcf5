/** The form of a project, and the dialogs that create and edit one. */
import { useNavigate } from "@tanstack/react-router";
import { Pencil, Plus } from "lucide-react";
import { useState } from "react";
import type { UseFormReturn } from "react-hook-form";
import { createProject, updateProject } from "@/api/projects";
import { CamelProjectIn as ProjectIn } from "@/api/request-fields";
import type { ModelArchitecture, Project, ProjectBody } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "./api-form";
import { SelectField, TextareaField, TextField } from "./field";
import { numberMistake, textOrNull, textRule } from "./rules";
import { TrainingDataField } from "./training-data-field";
import { z } from "./zod";

const ARCHITECTURE_NAMES = ProjectIn.modelArchitecture.enum;

const billions = (required: boolean) =>
  z
    .string()
    .trim()
    .transform((text, context) => {
      if (text === "" && !required) return null;
      // Number() also reads "", "0x10" and "1e3"; only plain decimals are meant here.
      const plain = /^\d+(\.\d+)?$/.test(text);
      const message = text === "" ? "Enter the size in billions of parameters." : plain ? numberMistake(text, ProjectIn.modelSize) : "Enter a plain number, such as 7 or 0.5.";
      if (message === null) return Number(text);
      context.addIssue({ code: "custom", message });
      return z.NEVER;
    });

/** A project that holds scripts has no model: neither an architecture nor a size. */
export const rulesFor = (withModel: boolean) =>
  z.object({
    name: textRule(ProjectIn.name).min(1, "Enter a project name."),
    description: textOrNull(ProjectIn.description),
    modelArchitecture: withModel ? z.enum(ARCHITECTURE_NAMES) : z.literal("").transform(() => null).or(z.enum(ARCHITECTURE_NAMES)),
    modelSize: billions(withModel),
    // Which paths are allowed is the server's to know; it answers with a message for this field.
    trainingDataPath: textOrNull(ProjectIn.trainingDataPath),
  });

export type ProjectFormValues = { name: string; description: string; modelArchitecture: ModelArchitecture | ""; modelSize: string; trainingDataPath: string };

export const emptyProject: ProjectFormValues = {
  name: "",
  description: "",
  modelArchitecture: "transformer",
  modelSize: "",
  trainingDataPath: "",
};

const formValuesOf = (project: Project): ProjectFormValues => ({
  name: project.name,
  description: project.description ?? "",
  modelArchitecture: project.modelArchitecture ?? "",
  modelSize: project.modelSize === null ? "" : String(project.modelSize),
  trainingDataPath: project.trainingDataPath ?? "",
});

/** The rules produce exactly what the server takes; this line fails to compile when they drift apart. */
const projectBody = (values: z.output<ReturnType<typeof rulesFor>>): ProjectBody => values;

const NAMES: Record<ModelArchitecture, string> = { transformer: "Transformer", custom: "Custom" };

export const architectureName = (architecture: ModelArchitecture | null) => (architecture ? NAMES[architecture] : "–");

const ARCHITECTURES = ARCHITECTURE_NAMES.map((architecture) => [architecture, NAMES[architecture]] as const);

type ProjectFormProps = {
  /** The project to edit; a new one is created without it. */
  project?: Project;
  onSaved: (project: Project) => void;
  onCancel: () => void;
};

export function ProjectForm({ project, onSaved, onCancel }: ProjectFormProps) {
  const withModel = !project || project.modelSize !== null;
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rulesFor(withModel) as z.ZodType<z.output<ReturnType<typeof rulesFor>>, ProjectFormValues>,
    defaultValues: project ? formValuesOf(project) : emptyProject,
    submit: async (values) => {
      const body = projectBody(values);
      onSaved(project ? await updateProject(project.id, body) : await createProject(body));
    },
  });

  return (
    <ApiForm label={project ? "Edit project" : "New project"} failure={failure} onSubmit={onSubmit}>
      <TextField label="Project name" {...field("name")} autoComplete="off" />
      <TextareaField label="Description" optional rows={3} {...field("description")} />
      <div className="grid gap-4 sm:grid-cols-2">
        <SelectField label="Model architecture" options={withModel ? ARCHITECTURES : [["", "No model"] as const, ...ARCHITECTURES]} help={<ArchitectureHelp form={form as never} />} {...field("modelArchitecture")} />
        <TextField
          label="Model size, in billions of parameters"
          inputMode="decimal"
          optional={!withModel}
          placeholder="7"
          autoComplete="off"
          {...field("modelSize")}
        />
      </div>
      <TrainingDataField value={form.watch("trainingDataPath")} onUploaded={(path) => form.setValue("trainingDataPath", path, { shouldDirty: true, shouldValidate: true })} {...field("trainingDataPath")} />
      <div className="mt-1 flex justify-end gap-2">
        <Button onClick={onCancel}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          {project ? "Save changes" : "Create project"}
        </Button>
      </div>
    </ApiForm>
  );
}

function ArchitectureHelp({ form }: { form: UseFormReturn<ProjectFormValues, unknown, never> }) {
  const chosen = form.watch("modelArchitecture");
  if (chosen === "custom") return "Jobs run your own script, or an architecture of an installed plug-in.";
  return chosen === "" ? undefined : "A Llama-like decoder of the size that you enter.";
}

type ProjectDialogProps = {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  project?: Project;
  onSaved: (project: Project) => void;
};

function ProjectDialog({ open, onOpenChange, project, onSaved }: ProjectDialogProps) {
  return (
    <Dialog
      open={open}
      onOpenChange={onOpenChange}
      title={project ? "Edit project" : "New project"}
      description={project ? undefined : "A project groups the training jobs of one model."}
    >
      <ProjectForm
        project={project}
        onCancel={() => onOpenChange(false)}
        onSaved={(saved) => {
          onOpenChange(false);
          onSaved(saved);
        }}
      />
    </Dialog>
  );
}

export function CreateProjectButton({ variant = "primary" }: { variant?: "primary" | "outline" }) {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  return (
    <>
      <Button variant={variant} onClick={() => setOpen(true)}>
        <Plus aria-hidden />
        New Project
      </Button>
      <ProjectDialog
        open={open}
        onOpenChange={setOpen}
        onSaved={(project) => {
          toast(`Project “${project.name}” created.`);
          void navigate({ to: "/projects/$projectId", params: { projectId: project.id } });
        }}
      />
    </>
  );
}

export function EditProjectButton({ project }: { project: Project }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <Pencil aria-hidden />
        Edit
      </Button>
      <ProjectDialog open={open} onOpenChange={setOpen} project={project} onSaved={() => toast("Changes saved.")} />
    </>
  );
}
