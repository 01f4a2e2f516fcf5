import type { ReactNode } from "react";
import { type FieldError, get, useFormContext, useFormState } from "react-hook-form";
import { CONFIG_GROUPS, type ConfigField, type ConfigGroup } from "@/forms/job-config";
import type { JobFormValues } from "@/forms/job-rules";
import { SelectField, TextField } from "@/forms/text-field";

/** The error of a field, by its path in the form. */
export function useFieldError() {
  const { errors } = useFormState<JobFormValues>();
  return (path: string) => (get(errors, path) as FieldError | undefined)?.message;
}

export function ConfigFields({ group }: { group: ConfigGroup }) {
  return CONFIG_GROUPS[group].map((field) => <OneField key={field.path} field={field} />);
}

type OneFieldProps = { field: ConfigField; help?: ReactNode; placeholder?: string; fieldClassName?: string };

export function OneField({ field, help, placeholder, fieldClassName }: OneFieldProps) {
  const { register } = useFormContext<JobFormValues>();
  const error = useFieldError();
  const path = `config.${field.path}`;
  const bound = {
    registration: register(path as keyof JobFormValues),
    label: field.label,
    help: help ?? field.help,
    error: error(path),
    fieldClassName,
  };
  if (field.kind === "choice") return <SelectField {...bound} options={field.options ?? []} />;
  const inputMode = field.kind === "whole" ? "numeric" : field.kind === "decimal" ? "decimal" : undefined;
  return <TextField {...bound} inputMode={inputMode} autoComplete="off" spellCheck={false} placeholder={placeholder ?? field.fallback} />;
}
