import { type ReactNode, useId } from "react";
import { cn } from "@/components/class-names";

type ControlProps = { id: string; "aria-invalid": boolean | undefined; "aria-describedby": string | undefined };

type FieldProps = {
  label: string;
  help?: ReactNode;
  error?: string;
  optional?: boolean;
  className?: string;
  children: (control: ControlProps) => ReactNode;
};

/** Label, control, help and error, tied together for those who cannot see that they are. */
export function Field({ label, help, error, optional, className, children }: FieldProps) {
  const id = useId();
  const described = [error && `${id}-error`, help && `${id}-help`].filter(Boolean).join(" ");
  return (
    <div className={cn("min-w-0", className)}>
      <label htmlFor={id} className="mb-1.5 flex justify-between gap-3 text-xs text-dim">
        {label}{" "}
        {optional && <span className="text-faint">optional</span>}
      </label>
      {children({ id, "aria-invalid": error ? true : undefined, "aria-describedby": described || undefined })}
      {error && (
        <p id={`${id}-error`} className="mt-1.5 text-xs text-danger-soft">
          {error}
        </p>
      )}
      {help && (
        <div id={`${id}-help`} className="mt-1.5 text-xs text-faint">
          {help}
        </div>
      )}
    </div>
  );
}
