import { cn } from "@/components/class-names";

/** How much of a job is done. Without a number it stays empty rather than guessing. */
export function ProgressBar({ value, label, className }: { value: number | null; label: string; className?: string }) {
  const percent = value === null ? 0 : Math.round(value * 1000) / 10;
  return (
    <div
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={value === null ? undefined : Math.round(percent)}
      className={cn("h-1.5 overflow-hidden rounded-full bg-white/9", className)}
    >
      <div
        className="h-full rounded-full bg-[linear-gradient(90deg,var(--color-primary),var(--color-violet))] transition-[width] duration-500 ease-out"
        style={{ width: `${percent}%` }}
      />
    </div>
  );
}
