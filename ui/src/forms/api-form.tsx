/** Forms that send to the API: validation before sending, and the server's errors at their fields. */
import { zodResolver } from "@hookform/resolvers/zod";
import { type BaseSyntheticEvent, type ReactNode, useState } from "react";
import { type DefaultValues, type FieldError, type FieldValues, get, type Path, useForm } from "react-hook-form";
import { ApiProblem, sentenceOf } from "@/api/problem";
import { cn } from "@/components/class-names";
import { Notice } from "@/components/notice";
import type { z } from "./zod";

type FormFailure = {
  /** One sentence for the whole form, or null when the fields say it all. */
  message: string | null;
  fields: { name: string; message: string }[];
};

/** Sorts a failure into what a form can show at its fields and what belongs above them. */
export function formFailure(error: unknown, fieldNames: readonly string[]): FormFailure {
  if (!(error instanceof ApiProblem)) return { message: sentenceOf(error), fields: [] };
  const fields: FormFailure["fields"] = [];
  const unmatched: string[] = [];
  for (const { field, message } of error.fieldErrors) {
    // The server names nested fields with dots; the form shows them at the field that holds them.
    const name = field.split(".")[0] ?? field;
    if (fieldNames.includes(name)) fields.push({ name, message });
    else unmatched.push(message);
  }
  // A field in the order of the form, so that the focus goes to the first one a person meets.
  fields.sort((a, b) => fieldNames.indexOf(a.name) - fieldNames.indexOf(b.name));
  if (fields.length === 0) return { message: error.message, fields };
  return { message: unmatched.length > 0 ? unmatched.join(" ") : null, fields };
}

type ApiFormSettings<Input extends FieldValues, Output extends FieldValues> = {
  schema: z.ZodType<Output, Input>;
  defaultValues: DefaultValues<Input>;
  /** Sends the values. What it throws is shown in the form. */
  submit: (values: Output) => Promise<void>;
};

/**
 * A form whose mistakes are found by the schema before sending and by the server after it, and shown
 * the same way: at the field, with the focus on the first.
 */
export function useApiForm<Input extends FieldValues, Output extends FieldValues>(
  settings: ApiFormSettings<Input, Output>,
) {
  const form = useForm<Input, unknown, Output>({
    resolver: zodResolver(settings.schema),
    defaultValues: settings.defaultValues,
    mode: "onTouched",
    reValidateMode: "onChange",
  });
  const [failure, setFailure] = useState<string | null>(null);
  const { errors, isSubmitting, isDirty } = form.formState;

  const send = form.handleSubmit(async (values) => {
    setFailure(null);
    try {
      await settings.submit(values);
    } catch (error) {
      const names = Object.keys(form.getValues());
      const { message, fields } = formFailure(error, names);
      setFailure(message);
      fields.forEach((field, index) =>
        form.setError(field.name as Path<Input>, { type: "server", message: field.message }, { shouldFocus: index === 0 }),
      );
    }
  });

  return {
    form,
    failure,
    isSubmitting,
    isDirty,
    onSubmit: (event: BaseSyntheticEvent) => {
      // A form in a dialog is, for React, still inside the form of the page.
      event.stopPropagation();
      void send(event);
    },
    /** What a field component needs to know about its field. */
    field: (name: Path<Input>) => ({
      registration: form.register(name),
      error: (get(errors, name) as FieldError | undefined)?.message,
    }),
  };
}

type ApiFormProps = {
  /** What the form is for, for those who hear it instead of seeing it. */
  label: string;
  failure: string | null;
  onSubmit: (event: BaseSyntheticEvent) => void;
  children: ReactNode;
  className?: string;
};

export function ApiForm({ label, failure, onSubmit, children, className }: ApiFormProps) {
  return (
    // The browser's own messages are off: ours say more, and stay.
    <form aria-label={label} noValidate onSubmit={onSubmit} className={cn("grid gap-4", className)}>
      {failure && (
        <Notice tone="bad" role="alert">
          {failure}
        </Notice>
      )}
      {children}
    </form>
  );
}
