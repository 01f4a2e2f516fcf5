/** Fields of a training config, and the accordion for rarely changed ones. */
import { ChevronRight } from "lucide-react";
import { createContext, type ReactNode, useContext, useState } from "react";
import { type FieldError, get, useFormContext, useFormState, useWatch } from "react-hook-form";
import { cn } from "@/components/class-names";
import { ChoiceCards, SelectField, TextareaField, TextField } from "@/forms/field";
import { type ConfigField, configDefault, type ConfigGroup, fieldsOf, isSet, type Json, valueAt } from "@/forms/job-fields";
import type { JobFormValues } from "@/forms/job-form";
import type { Option } from "@/forms/schema-fields";
import { settingText } from "@/text/numbers";

type KnownDefaults = {
  /** What the plan says about fields that are left empty; null until it has answered. */
  planned: Json | null;
  /** Whether the plan is for another config than the one in the form. */
  behind: boolean;
  /** Whether the form takes a model by its id. */
  byId: boolean;
};

export const ConfigDefaults = createContext<KnownDefaults>({ planned: null, behind: false, byId: false });

/** What an empty field would be: what the plan says, else the default of the config. */
function useDefault(field: ConfigField): string | undefined {
  const { planned, behind, byId } = useContext(ConfigDefaults);
  const values = useConfigValues();
  const { path, schema, kind } = field;
  // A default that depends on the method changes with the click, not with the plan that follows.
  const answered = schema.defaults && behind ? undefined : valueAt(planned, path);
  const value = answered ?? configDefault(field, values, byId);
  if (typeof value === "number") return settingText(value);
  if (typeof value === "string") return value;
  return schema.empty ?? (kind === "whole" || kind === "decimal" ? "automatic" : undefined);
}

/** The error of a field, by its path in the form. */
export function useFieldError() {
  const { errors } = useFormState<JobFormValues>();
  return (path: string) => (get(errors, path) as FieldError | undefined)?.message;
}

export const useConfigValues = () => useWatch<JobFormValues, "config">({ name: "config" });

/** The fields of a group that apply to the other chosen values. */
export function ConfigFields({ group }: { group: ConfigGroup }) {
  const values = useConfigValues();
  return fieldsOf(group, values).map((field) => <OneField key={field.path} field={field} />);
}

type OneFieldProps = { field: ConfigField; help?: ReactNode; placeholder?: string; fieldClassName?: string; options?: readonly Option[] };

export function OneField({ field, help, placeholder, fieldClassName, options = field.options }: OneFieldProps) {
  const bound = useBound(field);
  const usual = useDefault(field);
  const values = useConfigValues();
  const described = { ...bound, help: help ?? field.help, fieldClassName };
  if (options) return <SelectField {...described} options={options.map(([value, text]) => [value, text] as const)} />;
  if (field.kind === "lines") return <TextareaField {...described} rows={3} help={<>{described.help} Enter one per line; \n is a line break.</>} fieldClassName={cn("sm:col-span-2", fieldClassName)} placeholder={placeholder} />;
  // A numeric keyboard cannot type a word.
  const inputMode = field.schema.word ? undefined : field.kind === "whole" ? "numeric" : field.kind === "decimal" ? "decimal" : undefined;
  return <TextField {...described} inputMode={inputMode} autoComplete="off" spellCheck={false} placeholder={placeholder ?? usual} note={usual && isSet(field, values) ? `default: ${usual}` : undefined} />;
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

/** Fields that most people leave as they are. Opens by itself when one of them has a mistake. */
export function ConfigAccordion({ title, group, children }: { title: string; group: ConfigGroup; children: ReactNode }) {
  const [open, setOpen] = useState(false);
  const error = useFieldError();
  const values = useConfigValues();
  const fields = fieldsOf(group, values);
  const wrong = fields.some((field) => error(`config.${field.path}`));
  const changed = fields.filter((field) => isSet(field, values)).length;
  return (
    <details open={open || wrong} onToggle={(event) => setOpen(event.currentTarget.open)} className="group mt-4 border-t border-line pt-3">
      <summary className="flex cursor-pointer list-none items-center gap-1.5 text-xs text-dim hover:text-text">
        <ChevronRight aria-hidden className="size-3.5 shrink-0 transition-transform duration-150 group-open:rotate-90" />
        {title}
        <span className="ml-auto shrink-0 text-right text-faint">{changed === 0 ? "recommended values" : `${changed} changed`}</span>
      </summary>
      <div className="mt-3 grid gap-3.5 sm:grid-cols-2 xl:grid-cols-3">{children}</div>
    </details>
  );
}

/** What every training has besides its method, closed until somebody wants to change it. */
export function TrainingAccordions() {
  return (
    <>
      <ConfigAccordion title="Optimizer and schedule" group="optimizer">
        <ConfigFields group="optimizer" />
      </ConfigAccordion>
      <ConfigAccordion title="Engine: memory, precision, processes" group="engine">
        <ConfigFields group="engine" />
      </ConfigAccordion>
      <ConfigAccordion title="Checkpoints and evaluation" group="saving">
        <ConfigFields group="saving" />
      </ConfigAccordion>
      <ConfigAccordion title="Sample generations: your prompts, answered at every evaluation" group="samples">
        <ConfigFields group="samples" />
      </ConfigAccordion>
    </>
  );
}
