import type { ComponentProps, ReactNode } from "react";
import type { UseFormRegisterReturn } from "react-hook-form";
import { Input, Textarea } from "@/components/input";
import { Select } from "@/components/select";
import { Field } from "./field";

type Bound = {
  registration: UseFormRegisterReturn;
  label: string;
  error?: string;
  help?: ReactNode;
  optional?: boolean;
  fieldClassName?: string;
};

export function TextField({ registration, label, error, help, optional, fieldClassName, ...rest }: Bound & ComponentProps<"input">) {
  return (
    <Field label={label} error={error} help={help} optional={optional} className={fieldClassName}>
      {(control) => <Input {...rest} {...registration} {...control} />}
    </Field>
  );
}

export function TextareaField({ registration, label, error, help, optional, fieldClassName, ...rest }: Bound & ComponentProps<"textarea">) {
  return (
    <Field label={label} error={error} help={help} optional={optional} className={fieldClassName}>
      {(control) => <Textarea {...rest} {...registration} {...control} />}
    </Field>
  );
}

export function SelectField({ registration, label, error, help, optional, fieldClassName, ...rest }: Bound & ComponentProps<typeof Select>) {
  return (
    <Field label={label} error={error} help={help} optional={optional} className={fieldClassName}>
      {(control) => <Select {...rest} {...registration} {...control} />}
    </Field>
  );
}
