import { useQuery } from "@tanstack/react-query";
import { useFormContext, useWatch } from "react-hook-form";
import { projectsQuery } from "@/api/projects";
import { type JobFormValues, NEW_PROJECT } from "@/forms/job-rules";
import { SelectField, TextField } from "@/forms/text-field";
import { useFieldError } from "./config-fields";

/** The project a job belongs to: one that exists, or one that is created together with the job. */
export function ProjectFields() {
  const projects = useQuery(projectsQuery({ limit: 100 }));
  const { register } = useFormContext<JobFormValues>();
  const project = useWatch<JobFormValues, "project">({ name: "project" });
  const error = useFieldError();
  const options = [[NEW_PROJECT, "New project…"] as const, ...(projects.data?.items ?? []).map(({ id, name }) => [id, name] as const)];
  return (
    <>
      <SelectField label="Project" options={options} registration={register("project")} error={error("project")} />
      {project === NEW_PROJECT && (
        <TextField label="Name of the new project" autoComplete="off" registration={register("projectName")} error={error("projectName")} />
      )}
    </>
  );
}
