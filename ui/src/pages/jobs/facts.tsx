import type { ReactNode } from "react";

/** Names at the left, values at the right. */
export function Facts({ facts }: { facts: (readonly [name: string, value: ReactNode])[] }) {
  return (
    <dl className="grid gap-1.5 text-sm">
      {facts.map(([name, value]) => (
        <div key={name} className="flex flex-wrap items-baseline justify-between gap-x-4">
          <dt className="text-dim">{name}</dt>
          <dd className="min-w-0 text-right font-[520] break-words">{value}</dd>
        </div>
      ))}
    </dl>
  );
}
