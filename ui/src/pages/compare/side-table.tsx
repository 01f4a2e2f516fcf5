import type { ReactNode } from "react";
import { Swatch } from "./run-legend";

export type SideRow = { name: string; cells: ReactNode[]; marked?: number | null };

type SideTableProps = { label: string; labels: string[]; rows: SideRow[] };

/** One column for every run. Wider than a phone with many of them, so it scrolls on its own, by keyboard too. */
export function SideTable({ label, labels, rows }: SideTableProps) {
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
    <div role="region" aria-label={label} tabIndex={0} className="-mx-4 overflow-x-auto px-4">
      <table className="w-full border-collapse text-sm">
        <thead>
          <tr>
            <th scope="col" className="sticky left-0 bg-card pb-1.5 text-left">
              <span className="sr-only">Figure</span>
            </th>
            {labels.map((name, index) => (
              <th key={name} scope="col" className="min-w-28 pb-1.5 pl-4 max-sm:min-w-24 max-sm:pl-2.5 text-right text-xs font-[520] text-dim">
                <span className="inline-flex max-w-44 items-center gap-2">
                  <Swatch index={index} />
                  <span className="min-w-0 truncate">{name}</span>
                </span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name} className="border-t border-line">
              <th scope="row" className="sticky left-0 max-w-48 min-w-32 bg-card py-1.75 pr-3 max-sm:min-w-26 text-left font-[450] break-words text-dim">
                {row.name}
              </th>
              {row.cells.map((cell, index) => (
                <td key={labels[index]} className="py-1.75 pl-4 max-sm:pl-2.5 text-right break-words">
                  {row.marked === index ? (
                    <span className="font-[600] text-success-soft">
                      {cell} <span className="text-2xs font-[450]">best</span>
                    </span>
                  ) : (
                    cell
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
