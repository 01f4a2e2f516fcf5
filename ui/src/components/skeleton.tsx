import { cn } from "./class-names";

/** A shimmering placeholder. Hidden from screen readers: `Loading` says once that something is loading. */
export function Skeleton({ className }: { className?: string }) {
  return (
    <div
      aria-hidden
      className={cn(
        "h-4 animate-shimmer rounded-md bg-[linear-gradient(100deg,rgb(229_231_235/0.06)_35%,rgb(229_231_235/0.14)_50%,rgb(229_231_235/0.06)_65%)] bg-[length:220%_100%]",
        className,
      )}
    />
  );
}

/** Rows of about the height of what is coming, so that nothing jumps when it arrives. */
export function SkeletonRows({ rows = 4, className }: { rows?: number; className?: string }) {
  return (
    <div className="space-y-3">
      {Array.from({ length: rows }, (_, row) => (
        <Skeleton key={row} className={cn("h-9", className)} />
      ))}
    </div>
  );
}
