import { type ReactNode, createContext, useContext } from "react";
import { type FieldError, get, useFormContext, useFormState, useWatch } from "react-hook-form";
import { ChoiceCards } from "@/forms/choice-cards";
import { type ConfigField, type ConfigGroup, type Json, fieldsOf, valueAt } from "@/forms/job-fields";
import type { JobFormValues } from "@/forms/job-rules";
import { SelectField, TextField } from "@/forms/text-field";
import { settingText } from "@/text/numbers";

/** What the server would use for fields that are left empty; null until it has said so. */
export const ConfigDefaults = createContext<Json | null>(null);

function useDefault({ path, kind, fallback }: ConfigField): string | undefined {
  const value = valueAt(useContext(ConfigDefaults), path);
  if (typeof value === "number") return settingText(value);
  if (typeof value === "string") return value;
  return fallback ?? (kind === "whole" || kind === "decimal" ? "automatic" : undefined);
}

/** The error of a field, by its path in the form. */
export function useFieldError() {
  const { errors } = useFormState<JobFormValues>();
  return (path: string) => (get(errors, path) as FieldError | undefined)?.message;
}

export const useConfigValues = () => useWatch<JobFormValues, "config">({ name: "config" });

/** The fields of a group that apply beside what is chosen elsewhere. */
export function ConfigFields({ group }: { group: ConfigGroup }) {
  const values = useConfigValues();
  return fieldsOf(group, values).map((field) => <OneField key={field.path} field={field} />);
}

type OneFieldProps = { field: ConfigField; help?: ReactNode; placeholder?: string; fieldClassName?: string };

export function OneField({ field, help, placeholder, fieldClassName }: OneFieldProps) {
  const bound = useBound(field);
  const usual = useDefault(field);
  const described = { ...bound, help: help ?? field.help, fieldClassName };
  if (field.options) return <SelectField {...described} options={field.options.map(([value, text]) => [value, text] as const)} />;
  // A keyboard of digits has no letters.
  const inputMode = field.word ? undefined : field.kind === "whole" ? "numeric" : field.kind === "decimal" ? "decimal" : undefined;
  return <TextField {...described} inputMode={inputMode} autoComplete="off" spellCheck={false} placeholder={placeholder ?? usual} />;
}

/** The same for a choice whose alternatives each need a line. */
export function CardsField({ field, help }: { field: ConfigField; help?: string }) {
  return <ChoiceCards {...useBound(field)} options={field.options ?? []} help={help} />;
}

function useBound(field: ConfigField) {
  const { register } = useFormContext<JobFormValues>();
  const error = useFieldError();
  const path = `config.${field.path}`;
  return { registration: register(path as keyof JobFormValues), label: field.label, error: error(path) };
}
