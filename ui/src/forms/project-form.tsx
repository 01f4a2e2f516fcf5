import { useQuery } from "@tanstack/react-query";
import { serverQuery } from "@/api/account";
import { createProject, updateProject } from "@/api/projects";
import type { Project } from "@/api/types";
import { Button } from "@/components/button";
import { ApiForm } from "./api-form";
import { emptyProject, formValuesOf, projectBody, projectRules } from "./project-rules";
import { SelectField, TextField, TextareaField } from "./text-field";
import { useApiForm } from "./use-api-form";

const ARCHITECTURES = [
  ["transformer", "Transformer"],
  ["custom", "Custom"],
] as const;

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
        help={<DataPathHelp folders={server.data ? [server.data.uploadsFolder, ...server.data.dataRoots] : []} />}
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
      An address that starts with s3://, gs://, az://, hf:// or https://
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
