import type { Offers } from "@/api/scripts";
import { gpuText } from "./offer-words";

/** What is not offered, by its reason: a list of machines says little, a list of reasons says what to change. */
export function byReason(excluded: Offers["excluded"]): [reason: string, machines: string[]][] {
  const groups = new Map<string, string[]>();
  for (const each of excluded) groups.set(each.reason, [...(groups.get(each.reason) ?? []), `${each.title} ${gpuText(each)}`]);
  return [...groups].map(([reason, machines]) => [reason, [...new Set(machines)]]);
}

export function ExcludedList({ excluded }: { excluded: Offers["excluded"] }) {
  if (excluded.length === 0) return null;
  return (
    <details className="min-w-0 flex-1 basis-60 text-xs">
      <summary className="ml-auto w-max cursor-pointer py-1.5 text-dim hover:text-text">{excluded.length} not offered, and why</summary>
      <ul className="mt-1 grid gap-1.5 text-dim">
        {byReason(excluded).map(([reason, machines]) => (
          <li key={reason}>
            {reason} <span className="text-faint">{machines.join(", ")}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
