/** Fields of a training config, and the accordion for rarely changed ones. */
import { createContext, type ReactNode, useContext, useState } from "react";
import { type FieldError, get, useFormContext, useFormState, useWatch } from "react-hook-form";
import { Accordion } from "@/components/accordion";
import { cn } from "@/components/class-names";
import { ChoiceCards, SelectField, TextareaField, TextField } from "@/forms/field";
import { applies, CONFIG_FIELDS, type ConfigField, configDefault, type ConfigGroup, type ConfigPath, type ConfigValues, fieldsOf, isSet, type Json, valueAt } from "@/forms/job-fields";
import type { JobFormValues } from "@/forms/job-form";
import type { Option } from "@/forms/schema-fields";
import { counted, settingText } from "@/text/numbers";

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
  return defaultText(field, useContext(ConfigDefaults), useConfigValues());
}

function defaultText(field: ConfigField, { planned, behind, byId }: KnownDefaults, values: ConfigValues): string | undefined {
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

type OneFieldProps = { field: ConfigField; help?: ReactNode; placeholder?: string; fieldClassName?: string; options?: readonly Option[]; compact?: boolean; note?: ReactNode };

export function OneField({ field, help, placeholder, fieldClassName, options = field.options, compact, note }: OneFieldProps) {
  const bound = useBound(field);
  const usual = useDefault(field);
  const values = useConfigValues();
  const described = { ...bound, help: help ?? field.help, fieldClassName, compact };
  // Some lists arrive after the form: without its value the browser would show the first entry.
  if (options) return <SelectField {...described} value={String(valueAt(values, field.path) ?? "")} options={options.map(([value, text]) => [value, text] as const)} />;
  if (field.kind === "lines") return <TextareaField {...described} rows={3} help={<>{described.help} Enter one per line; \n is a line break.</>} fieldClassName={cn("sm:col-span-2", fieldClassName)} placeholder={placeholder} />;
  // A numeric keyboard cannot type a word.
  const inputMode = field.schema.word ? undefined : field.kind === "whole" ? "numeric" : field.kind === "decimal" ? "decimal" : undefined;
  return <TextField {...described} fieldClassName={cn("@container", fieldClassName)} inputMode={inputMode} autoComplete="off" spellCheck={false} placeholder={placeholder ?? usual} note={note ?? (usual && isSet(field, values) ? `default: ${usual}` : undefined)} />;
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

/** What a closed heading says of one field, from the text of its value. */
type SummaryPart = readonly [path: ConfigPath, say: (value: string) => string];

/** The present values of some fields, typed or by default; what does not apply is left out. */
function useSummary(parts: readonly SummaryPart[]): string {
  const known = useContext(ConfigDefaults);
  const values = useConfigValues();
  return parts
    .flatMap(([path, say]) => {
      const field = CONFIG_FIELDS.find((each) => each.path === path);
      if (!field || !applies(field, values)) return [];
      const typed = String(valueAt(values, path) ?? "").trim();
      const value = field.options?.find(([option]) => option === typed)?.[1] ?? (typed || (defaultText(field, known, values) ?? ""));
      return [say(value)];
    })
    .join(" · ");
}

type ConfigAccordionProps = { title: string; group: ConfigGroup; parts: readonly SummaryPart[]; children: ReactNode };

/** Fields that most people leave as they are. Opens by itself when one of them has a mistake. */
export function ConfigAccordion({ title, group, parts, children }: ConfigAccordionProps) {
  const [open, setOpen] = useState(false);
  const error = useFieldError();
  const values = useConfigValues();
  const summary = useSummary(parts);
  const fields = fieldsOf(group, values);
  const wrong = fields.some((field) => error(`config.${field.path}`));
  const changed = fields.filter((field) => isSet(field, values)).length;
  return (
    <Accordion
      title={title}
      open={open || wrong}
      onToggle={setOpen}
      summary={
        <>
          {summary}
          {changed > 0 && <b className="font-[560] text-violet-soft"> · {changed} changed</b>}
        </>
      }
    >
      <div className="grid items-start gap-3.5 sm:grid-cols-2 xl:grid-cols-3">{children}</div>
    </Accordion>
  );
}

const lower = (value: string) => value.toLowerCase();
const prompts = (value: string) => value.split("\n").filter((line) => line.trim() !== "").length;

/** What every training has besides its method, closed until somebody wants to change it. */
export function TrainingAccordions() {
  return (
    <>
      <ConfigAccordion
        title="Optimizer and schedule"
        group="optimizer"
        parts={[
          ["optimizer.name", (value) => value],
          ["optimizer.weight_decay", (value) => `weight decay ${value}`],
          ["schedule.warmup_steps", (value) => `warmup ${value}`],
          ["accumulation", (value) => `gradient accumulation ${value}`],
        ]}
      >
        <ConfigFields group="optimizer" />
      </ConfigAccordion>
      <ConfigAccordion
        title="Engine: memory, precision, processes"
        group="engine"
        parts={[
          ["precision", (value) => `precision ${lower(value)}`],
          ["processes", (value) => `processes: ${value}`],
        ]}
      >
        <ConfigFields group="engine" />
      </ConfigAccordion>
      <ConfigAccordion
        title="Checkpoints and evaluation"
        group="saving"
        parts={[
          ["checkpoint.keep_last", (value) => `keeps the last ${value}`],
          ["eval.every_steps", (value) => (/^\d+$/.test(value) ? `evaluates every ${value} steps` : `evaluates at the ${value}`)],
        ]}
      >
        <ConfigFields group="saving" />
      </ConfigAccordion>
      <ConfigAccordion title="Sample generations" group="samples" parts={[["eval.prompts", (value) => (prompts(value) === 0 ? "no prompts" : `${counted(prompts(value), "prompt")} at every evaluation`)]]}>
        <ConfigFields group="samples" />
      </ConfigAccordion>
    </>
  );
}
