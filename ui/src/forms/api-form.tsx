import type { BaseSyntheticEvent, ReactNode } from "react";
import { Notice } from "@/components/notice";
import { cn } from "@/components/class-names";

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
