import type { DatasetColumn, DatasetReport } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { countText } from "@/text/numbers";

const columns: Column<DatasetColumn>[] = [
  { header: "Column", lead: true, cell: ({ name }) => <code className="font-mono text-xs break-all">{name}</code> },
  { header: "Holds", cell: ({ types }) => typesText(types) },
  { header: "Filled", end: true, cell: ({ filled }) => countText(filled) },
  { header: "Missing", end: true, cell: ({ missing }) => (missing > 0 ? <span className="text-warning">{countText(missing)}</span> : null) },
];

const typesText = (types: Record<string, number>) =>
  Object.entries(types)
    .toSorted((a, b) => b[1] - a[1])
    .map(([name, count], _, all) => (all.length === 1 ? name : `${name} (${countText(count)})`))
    .join(", ");

export function ColumnsCard({ report }: { report: DatasetReport }) {
  return (
    <Card aria-label="Columns">
      <CardHeader title="Columns" />
      <DataTable label="Columns" columns={columns} rows={report.columns} rowKey={({ name }) => name} />
    </Card>
  );
}
