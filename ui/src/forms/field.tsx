/** Fields with a label, a help text and an error: text, password, select, cards. */
import { Eye, EyeOff } from "lucide-react";
import { type ComponentProps, type ReactNode, useId, useState } from "react";
import type { UseFormRegisterReturn } from "react-hook-form";
import { cn } from "@/components/class-names";
import { Hint } from "@/components/hint";
import { Input, Select, Textarea } from "@/components/input";

type ControlProps = { id: string; "aria-invalid": boolean | undefined; "aria-describedby": string | undefined };

type FieldProps = {
  label: string;
  help?: ReactNode;
  error?: string;
  optional?: boolean;
  /** Stands at the right of the label: a few words, or a button. */
  note?: ReactNode;
  /** The help is behind a question mark. */
  compact?: boolean;
  className?: string;
  children: (control: ControlProps) => ReactNode;
};

/** Label, control, help and error, tied together for those who cannot see that they are. */
export function Field({ label, help, error, optional, note, compact = false, className, children }: FieldProps) {
  const id = useId();
  const described = [error && `${id}-error`, typeof note === "string" && `${id}-note`, help && `${id}-help`].filter(Boolean).join(" ");
  return (
    <div className={cn("min-w-0", className)}>
      <div className="mb-1.5 flex items-start justify-between gap-3 text-xs text-dim">
        <span className={cn("flex min-w-0 gap-1", !compact && "grow")}>
          <label htmlFor={id} className="flex grow justify-between gap-3">
            {label} {optional && <span className="text-faint">optional</span>}
          </label>
          {help && compact && <Hint about={label}>{help}</Hint>}
        </span>
        {/* Beside the label: the name of a field does not change while somebody types. A narrow field has room for its name only. */}
        {typeof note === "string" ? <span id={`${id}-note`} className="whitespace-nowrap text-faint max-sm:hidden @max-[13rem]:hidden">{note}</span> : note}
      </div>
      {children({ id, "aria-invalid": error ? true : undefined, "aria-describedby": described || undefined })}
      {error && (
        <p id={`${id}-error`} className="mt-1.5 text-xs text-danger-soft">
          {error}
        </p>
      )}
      {help && (
        <div id={`${id}-help`} hidden={compact} className="mt-1.5 text-xs text-faint">
          {help}
        </div>
      )}
    </div>
  );
}

type Bound = {
  registration: UseFormRegisterReturn;
  label: string;
  error?: string;
  help?: ReactNode;
  optional?: boolean;
  note?: ReactNode;
  compact?: boolean;
  fieldClassName?: string;
};

export function TextField({ registration, label, error, help, optional, note, compact, fieldClassName, ...rest }: Bound & ComponentProps<"input">) {
  return (
    <Field label={label} error={error} help={help} optional={optional} note={note} compact={compact} className={fieldClassName}>
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

type PasswordFieldProps = ComponentProps<"input"> & {
  registration: UseFormRegisterReturn;
  label: string;
  error?: string;
  help?: ReactNode;
  /** What is hidden, for the button that shows it. */
  secret?: string;
};

export function PasswordField({ registration, label, error, help, secret = "password", ...rest }: PasswordFieldProps) {
  const [visible, setVisible] = useState(false);
  const Icon = visible ? EyeOff : Eye;
  return (
    <Field label={label} error={error} help={help}>
      {(control) => (
        <div className="relative">
          <Input {...rest} {...registration} {...control} type={visible ? "text" : "password"} className="pr-11" />
          <button
            type="button"
            aria-label={`${visible ? "Hide" : "Show"} ${secret}`}
            onClick={() => setVisible(!visible)}
            className="absolute inset-y-0 right-0 grid w-10 place-items-center rounded-control text-dim hover:text-text"
          >
            <Icon aria-hidden className="size-4" />
          </button>
        </div>
      )}
    </Field>
  );
}

type CheckFieldProps = { registration: UseFormRegisterReturn; label: string; error?: string };

export function CheckField({ registration, label, error }: CheckFieldProps) {
  return (
    <div>
      <label className="flex cursor-pointer items-center gap-2.5">
        <input type="checkbox" {...registration} className="size-4 accent-violet" />
        {label}
      </label>
      {error && <p className="mt-1.5 text-xs text-danger-soft">{error}</p>}
    </div>
  );
}

type ChoiceCardsProps = {
  registration: UseFormRegisterReturn;
  label: string;
  options: readonly (readonly [value: string, text: string, note?: string])[];
  help?: string;
  error?: string;
};

/** A few alternatives that deserve a line each, side by side. Radio buttons underneath: arrow keys move. */
export function ChoiceCards({ registration, label, options, help, error }: ChoiceCardsProps) {
  const id = useId();
  const described = [error && `${id}-error`, help && `${id}-help`].filter(Boolean).join(" ");
  return (
    <fieldset aria-describedby={described || undefined} className="min-w-0">
      <legend className="mb-1.5 text-xs text-dim">{label}</legend>
      <div className="grid gap-2 sm:grid-cols-3">
        {options.map(([value, text, note]) => (
          <label
            key={value}
            className="block cursor-pointer rounded-control border border-line-strong px-3 py-2 transition-colors max-sm:flex max-sm:flex-wrap max-sm:items-baseline max-sm:gap-x-2 duration-150 hover:border-white/25 has-checked:border-violet-bright has-checked:bg-violet/15 has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-violet-soft"
          >
            <input type="radio" value={value} {...registration} className="sr-only" />
            <span className="block font-[560]">{text}</span>
            {note && <span className="block text-xs text-dim">{note}</span>}
          </label>
        ))}
      </div>
      {error && (
        <p id={`${id}-error`} className="mt-1.5 text-xs text-danger-soft">
          {error}
        </p>
      )}
      {help && (
        <p id={`${id}-help`} className="mt-1.5 text-xs text-faint">
          {help}
        </p>
      )}
    </fieldset>
  );
}
