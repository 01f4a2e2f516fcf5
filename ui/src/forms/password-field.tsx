import { Eye, EyeOff } from "lucide-react";
import { type ComponentProps, type ReactNode, useState } from "react";
import type { UseFormRegisterReturn } from "react-hook-form";
import { Input } from "@/components/input";
import { Field } from "./field";

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
