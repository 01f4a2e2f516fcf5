import type { ComponentProps } from "react";
import { cn } from "./class-names";

type UpdatingProps = ComponentProps<"div"> & {
  /** The content belongs to an earlier request; its successor is on the way. */
  pending: boolean;
};

/** Content that is out of date for a moment. It keeps its colours, since dimmed text is too faint to read; a line above moves. */
export function Updating({ pending, className, children, ...rest }: UpdatingProps) {
  return (
    <div {...rest} aria-busy={pending} className={cn("relative", className)}>
      {pending && (
        <span
          aria-hidden
          className="absolute inset-x-0 -top-2 h-0.5 animate-shimmer rounded-full bg-[linear-gradient(100deg,transparent_35%,var(--color-violet-bright)_50%,transparent_65%)] bg-[length:220%_100%]"
        />
      )}
      {children}
    </div>
  );
}
