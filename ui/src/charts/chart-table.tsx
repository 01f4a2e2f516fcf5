import { useState } from "react";
import { DataTable } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { countText } from "@/text/numbers";
import type { ChartSpec } from "./chart-canvas";
import { useChartsView } from "./charts-view";
import { tableRows } from "./describe";

/** The newest values of a chart as text. A snapshot: rows that move cannot be read. */
export function ChartTable({ spec, onClose }: { spec: ChartSpec; onClose: () => void }) {
  const { store } = useChartsView();
  const [rows] = useState(() => tableRows(spec.lines, (name) => store.curve(name)));
  const thinned = rows.some((row) => row.cells.some((cell) => cell?.low !== undefined));
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={spec.title} description={thinned ? "The newest values, newest first. Where several steps share a row: their mean, and their lowest and highest value." : "The newest values, newest first."} className="max-w-xl">
      <DataTable
        label={spec.title}
        rows={rows}
        rowKey={(row) => row.key}
        columns={[
          {
            header: spec.over === "tokens" ? "Tokens" : spec.axis === "step" ? "Step" : "Time",
            lead: true,
            cell: (row) => (spec.axis === "step" ? countText(row.x) : new Date(row.x * 1000).toLocaleTimeString("en-GB")),
          },
          { header: "Attempt", cell: (row) => row.attempt },
          ...spec.lines.map((line, column) => ({
            header: spec.lines.length > 1 ? line.label : "Value",
            end: true,
            cell: (row: (typeof rows)[number]) => {
              const cell = row.cells[column];
              if (!cell) return null;
              return cell.low === undefined || cell.high === undefined ? spec.format(cell.value) : `${spec.format(cell.value)} (${spec.format(cell.low)} to ${spec.format(cell.high)})`;
            },
          })),
        ]}
      />
    </Dialog>
  );
}
