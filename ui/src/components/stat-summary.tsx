import type { ReactNode } from "react";
import { Skeleton } from "./skeleton";

export type Stat = { name: string; value: ReactNode | undefined; unit?: string };

/** A strip of figures. A value that is not there yet shimmers; it never shows a zero that is not true. */
export function StatSummary({ label, stats }: { label: string; stats: Stat[] }) {
  return (
    <dl
      aria-label={label}
      className="grid grid-cols-2 overflow-hidden rounded-card border border-line bg-card lg:grid-flow-col lg:auto-cols-fr lg:grid-cols-none"
    >
      {stats.map(({ name, value, unit }) => (
        <div key={name} className="-mt-px -ml-px border-t border-l border-line px-4 py-3 max-lg:last:odd:col-span-2">
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
