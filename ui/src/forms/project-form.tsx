/** The form of a project, and the dialogs that create and edit one. */
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Pencil, Plus } from "lucide-react";
import { useState } from "react";
import { serverQuery } from "@/api/account";
import { createProject, updateProject } from "@/api/projects";
import { CamelProjectIn as ProjectIn } from "@/api/request-fields";
import type { ModelArchitecture, Project, ProjectBody } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "./api-form";
import { SelectField, TextareaField, TextField } from "./field";
import { numberMistake, textOrNull, textRule } from "./rules";
import { z } from "./zod";

const billions = z
  .string()
  .trim()
  .min(1, "Enter the size in billions of parameters.")
  .transform((text, context) => {
    // Number() also reads "", "0x10" and "1e3"; only plain decimals are meant here.
    const plain = /^\d+(\.\d+)?$/.test(text);
    const message = plain ? numberMistake(text, ProjectIn.modelSize) : "Enter a plain number, such as 7 or 0.5.";
    if (message === null) return Number(text);
    context.addIssue({ code: "custom", message });
    return z.NEVER;
  });

export const projectRules = z.object({
  name: textRule(ProjectIn.name).min(1, "Enter a project name."),
  description: textOrNull(ProjectIn.description),
  modelArchitecture: z.enum(ProjectIn.modelArchitecture.enum),
  modelSize: billions,
  // Which paths are allowed is the server's to know; it answers with a message for this field.
  trainingDataPath: textOrNull(ProjectIn.trainingDataPath),
});

export type ProjectFormValues = z.input<typeof projectRules>;

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
  modelArchitecture: project.modelArchitecture,
  modelSize: String(project.modelSize),
  trainingDataPath: project.trainingDataPath ?? "",
});

/** The rules produce exactly what the server takes; this line fails to compile when they drift apart. */
const projectBody = (values: z.output<typeof projectRules>): ProjectBody => values;

const NAMES: Record<ModelArchitecture, string> = { transformer: "Transformer", custom: "Custom" };

export const architectureName = (architecture: ModelArchitecture) => NAMES[architecture];

const ARCHITECTURES = ProjectIn.modelArchitecture.enum.map((architecture) => [architecture, NAMES[architecture]] as const);

type ProjectFormProps = {
  /** The project to edit; a new one is created without it. */
  project?: Project;
  onSaved: (project: Project) => void;
  onCancel: () => void;
};

export function ProjectForm({ project, onSaved, onCancel }: ProjectFormProps) {
  const server = useQuery(serverQuery);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: projectRules,
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
        <SelectField label="Model architecture" options={ARCHITECTURES} {...field("modelArchitecture")} />
        <TextField
          label="Model size, in billions of parameters"
          inputMode="decimal"
          placeholder="7"
          autoComplete="off"
          {...field("modelSize")}
        />
      </div>
      <TextField
        label="Training data"
        optional
        placeholder="s3://bucket/folder/"
        autoComplete="off"
        spellCheck={false}
        help={<DataPathHelp folders={server.data ? [server.data.uploads_folder, ...server.data.data_roots].filter((folder) => folder !== null) : []} />}
        {...field("trainingDataPath")}
      />
      <div className="mt-1 flex justify-end gap-2">
        <Button onClick={onCancel}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          {project ? "Save changes" : "Create project"}
        </Button>
      </div>
    </ApiForm>
  );
}

function DataPathHelp({ folders }: { folders: string[] }) {
  return (
    <>
      A URL that starts with s3://, gs://, az://, hf:// or https://
      {folders.length === 0 ? (
        ", or a file on the server."
      ) : (
        <>
          , or a path on the server inside{" "}
          {folders.map((folder, index) => (
            <span key={folder}>
              {index > 0 && " or "}
              <code className="font-mono text-[11px] break-all text-dim">{folder}</code>
            </span>
          ))}
          .
        </>
      )}
    </>
  );
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
