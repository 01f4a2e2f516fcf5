import { zodResolver } from "@hookform/resolvers/zod";
import { type BaseSyntheticEvent, useState } from "react";
import { type DefaultValues, type FieldError, type FieldValues, type Path, get, useForm } from "react-hook-form";
import { formFailure } from "./problem-to-form";
import type { z } from "./zod";

type ApiFormSettings<Input extends FieldValues, Output extends FieldValues> = {
  schema: z.ZodType<Output, Input>;
  defaultValues: DefaultValues<Input>;
  /** Sends the values. What it throws is shown in the form. */
  submit: (values: Output) => Promise<void>;
};

/**
 * A form whose mistakes are found by the schema before sending and by the server after it, and shown
 * the same way: beside the field, with the focus on the first.
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
