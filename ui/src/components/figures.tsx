/** Figures on a page: a row of large ones, a list of facts, a progress bar. */
import type { ReactNode } from "react";
import { cn } from "./class-names";
import { Skeleton } from "./loaded";

export type Stat = { name: string; value: ReactNode | undefined; unit?: string };

/** A strip of figures. A value that is not there yet shimmers; it never shows a zero that is not true. */
export function StatSummary({ label, stats }: { label: string; stats: Stat[] }) {
  return (
    <dl
      aria-label={label}
      className="grid grid-cols-2 overflow-hidden rounded-card border border-line bg-card lg:grid-flow-col lg:auto-cols-fr lg:grid-cols-none"
    >
      {stats.map(({ name, value, unit }) => (
        <div key={name} className="-mt-px -ml-px border-t border-l border-line px-4 py-3 max-sm:py-2 max-lg:last:odd:col-span-2">
          <dt className="text-2xs text-dim">{name}</dt>
          <dd className="mt-0.5 text-xl font-[600] tracking-[-0.02em]">
            {value === undefined ? <Skeleton className="my-1 h-4 w-14" /> : value}
            {unit && value !== undefined && <small className="ml-1.5 text-xs font-[450] tracking-normal text-dim">{unit}</small>}
          </dd>
        </div>
      ))}
    </dl>
  );
}

type FactsProps = {
  facts: readonly (readonly [name: string, value: ReactNode])[];
  /** Two columns where there is room: across a wide card, a value is too far from its name. */
  wide?: boolean;
};

/** Names at the left, values at the right. */
export function Facts({ facts, wide = false }: FactsProps) {
  return (
    <dl className={cn("text-sm", wide ? "-mb-1.5 gap-x-10 md:columns-2" : "grid gap-1.5")}>
      {facts.map(([name, value]) => (
        <div key={name} className={cn("flex flex-wrap items-baseline justify-between gap-x-4", wide && "mb-1.5 break-inside-avoid")}>
          <dt className="text-dim">{name}</dt>
          <dd className="min-w-0 text-right font-[520] wrap-anywhere">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

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
        className="h-full rounded-full bg-[linear-gradient(90deg,var(--color-primary),var(--color-violet))] transition-[width] duration-250 ease-out"
        style={{ width: `${percent}%` }}
      />
    </div>
  );
}
