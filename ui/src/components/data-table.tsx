/** Tables, and the buttons that turn their pages. */
import { type ReactNode, useEffect } from "react";
import { Button } from "./button";
import { cn } from "./class-names";

export type Column<Row> = {
  header: string;
  /** Null for nothing: a dash in the table, and nothing at all on a phone. */
  cell: (row: Row) => ReactNode | null;
  /** Right-aligned, for numbers and actions. */
  end?: boolean;
  /** The first thing to read in a row; on a phone it stands on a line of its own. */
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
 * A table that becomes a list of two-line rows on a phone. Both are the same elements: changing `display`
 * takes the table's meaning from screen readers, so the roles are written out.
 */
export function DataTable<Row>({ label, columns, rows, rowKey }: DataTableProps<Row>) {
  // A name and a figure stay on one line, whatever the screen.
  const pairs = columns.length === 2;
  return (
    <table role="table" aria-label={label} className="w-full border-collapse max-md:block">
      <thead role="rowgroup" className="max-md:sr-only">
        <tr role="row">
          {columns.map((column, index) => (
            <th
              key={column.header}
              role="columnheader"
              scope="col"
              className={cn("px-2 pb-1.5 text-left text-2xs font-[450] text-faint first:pl-0 last:pr-0", column.end ? "text-right" : columns[index - 1]?.end && AFTER_END)}
            >
              {column.quiet ? <span className="sr-only">{column.header}</span> : column.header}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup" className="max-md:grid">
        {rows.map((row) => (
          <tr
            key={rowKey(row)}
            role="row"
            className={cn(
              "border-t border-line transition-colors duration-150 hover:bg-white/3",
              pairs
                ? "max-md:flex max-md:items-baseline max-md:justify-between max-md:gap-4 max-md:py-1"
                : // The name and the actions on the first line, what differs on the second.
                  "max-md:flex max-md:flex-wrap max-md:items-center max-md:gap-x-3.5 max-md:gap-y-0.5 max-md:py-2.5 max-md:after:order-3 max-md:after:basis-full max-md:after:content-['']",
            )}
          >
            {columns.map((column, index) => (
              <DataCell key={column.header} column={column} content={column.cell(row)} named={!pairs} afterEnd={columns[index - 1]?.end === true} />
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A text beside a figure that ends right before it. */
const AFTER_END = "md:pl-6";

type DataCellProps<Row> = { column: Column<Row>; content: ReactNode | null; named: boolean; afterEnd: boolean };

function DataCell<Row>({ column, content, named, afterEnd }: DataCellProps<Row>) {
  const nothing = content === null;
  return (
    <td
      role="cell"
      className={cn(
        "px-2 py-2.5 align-middle first:pl-0 last:pr-0 max-md:block max-md:min-w-0 max-md:p-0",
        column.end ? "md:text-right" : "wrap-anywhere",
        afterEnd && !column.end && AFTER_END,
        named && "max-md:order-4",
        // The label stands on the first line of its value.
        named && !column.lead && !column.quiet && "max-md:flex max-md:items-baseline",
        named && column.lead && "normal-nums max-md:order-1 max-md:flex-1",
        named && column.quiet && "max-md:order-2 max-md:ml-auto",
        nothing && "max-md:hidden",
      )}
    >
      {named && !column.lead && !column.quiet && (
        <span aria-hidden className="mr-1.5 shrink-0 text-2xs text-faint md:hidden">
          {column.header}
        </span>
      )}
      {column.lead ? content : <div className={cn("min-w-0", named && !column.quiet && "max-md:text-sm")}>{nothing && !column.quiet ? "–" : content}</div>}
    </td>
  );
}

type PageStepsProps = { page: number; pageSize: number; total: number; onTurn: (page: number) => void; label?: string };

/**
 * "21–40 of 65", with steps to either side. Absent when everything fits on one page. Turns back to the last page when
 * the list became shorter than the page that is shown.
 */
export function PageSteps({ page, pageSize, total, onTurn, label = "Pages" }: PageStepsProps) {
  const pages = Math.max(1, Math.ceil(total / pageSize));
  useEffect(() => {
    if (page > pages) onTurn(pages);
  });
  if (total <= pageSize) return null;
  const first = (page - 1) * pageSize + 1;
  const last = Math.min(page * pageSize, total);
  return (
    <nav aria-label={label} className="mt-3 flex items-center justify-end gap-2 text-sm text-dim">
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
