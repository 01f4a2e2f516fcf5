/** Tables, and the buttons that turn their pages. */
import type { ReactNode } from "react";
import { Button } from "./button";
import { cn } from "./class-names";

export type Column<Row> = {
  header: string;
  /** Null for nothing: a dash in the table, and no line at all in the card. */
  cell: (row: Row) => ReactNode | null;
  /** Right-aligned, for numbers and actions. */
  end?: boolean;
  /** The first thing to read in a row; on a phone it becomes the card's heading. */
  lead?: boolean;
  /** The header is only for screen readers, as for a column of buttons. */
  quiet?: boolean;
};

type DataTableProps<Row> = {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
};

/**
 * A table that becomes a list of cards on a phone. Both are the same elements: changing `display`
 * takes the table's meaning from screen readers, so the roles are written out.
 */
export function DataTable<Row>({ label, columns, rows, rowKey }: DataTableProps<Row>) {
  // A name and a figure stay on one line, whatever the screen.
  const pairs = columns.length === 2;
  return (
    <table role="table" aria-label={label} className="w-full border-collapse max-md:block">
      <thead role="rowgroup" className="max-md:sr-only">
        <tr role="row">
          {columns.map((column) => (
            <th
              key={column.header}
              role="columnheader"
              scope="col"
              className={cn("px-2 pb-1.5 text-left text-2xs font-[450] text-faint first:pl-0 last:pr-0", column.end && "text-right")}
            >
              {column.quiet ? <span className="sr-only">{column.header}</span> : column.header}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup" className={cn("max-md:grid", !pairs && "max-md:gap-3")}>
        {rows.map((row) => (
          <tr
            key={rowKey(row)}
            role="row"
            className={cn(
              "border-t border-line transition-colors duration-150 hover:bg-white/3",
              pairs
                ? "max-md:flex max-md:items-baseline max-md:justify-between max-md:gap-4 max-md:py-1"
                : "max-md:grid max-md:grid-cols-2 max-md:gap-x-4 max-md:rounded-card max-md:border max-md:bg-white/3 max-md:p-3.5",
            )}
          >
            {columns.map((column) => (
              <DataCell key={column.header} column={column} content={column.cell(row)} named={!pairs} />
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function DataCell<Row>({ column, content, named }: { column: Column<Row>; content: ReactNode | null; named: boolean }) {
  const nothing = content === null;
  return (
    <td
      role="cell"
      className={cn(
        "px-2 py-2.5 align-middle first:pl-0 last:pr-0 max-md:block max-md:min-w-0 max-md:px-0 max-md:py-1",
        column.end && "md:text-right",
        column.lead && "normal-nums max-md:col-span-2 max-md:mb-1",
        column.quiet && "max-md:col-span-2 max-md:mt-2 max-md:flex max-md:justify-end",
        nothing && "max-md:hidden",
      )}
    >
      {named && !column.lead && !column.quiet && (
        <span aria-hidden className="block text-2xs text-faint md:hidden">
          {column.header}
        </span>
      )}
      {column.lead ? content : <div className="min-w-0">{nothing && !column.quiet ? "–" : content}</div>}
    </td>
  );
}

type PageStepsProps = { page: number; pageSize: number; total: number; onTurn: (page: number) => void };

/** "21–40 of 65", with steps to either side. Absent when everything fits on one page. */
export function PageSteps({ page, pageSize, total, onTurn }: PageStepsProps) {
  if (total <= pageSize) return null;
  const first = (page - 1) * pageSize + 1;
  const last = Math.min(page * pageSize, total);
  return (
    <nav aria-label="Pages" className="mt-3 flex items-center justify-end gap-2 text-sm text-dim">
      <span aria-live="polite" className="mr-2">
        {first}–{last} of {total.toLocaleString("en-GB")}
      </span>
      <Button size="small" disabled={page <= 1} onClick={() => onTurn(page - 1)}>
        Previous
      </Button>
      <Button size="small" disabled={last >= total} onClick={() => onTurn(page + 1)}>
        Next
      </Button>
    </nav>
  );
}
