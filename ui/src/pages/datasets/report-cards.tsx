/** Cards of a dataset's report: columns, lengths, problems, duplicates. */
import { useQuery } from "@tanstack/react-query";
import { CircleCheck } from "lucide-react";
import { useState } from "react";
import { problemsQuery } from "@/api/datasets";
import type { Dataset, DatasetColumn, DatasetReport, Lengths, RowProblem } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable, PageSteps } from "@/components/data-table";
import { Facts } from "@/components/figures";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Badge } from "@/components/notice";
import { counted, countText, sentence } from "@/text/numbers";

const datasetColumns: Column<DatasetColumn>[] = [
  { header: "Column", lead: true, cell: ({ name }) => <code className="font-mono text-xs break-all">{name}</code> },
  { header: "Data type", cell: ({ types }) => typesText(types) },
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
      {report.unused_columns.length > 0 && (
        <p className="mb-2.5 text-sm text-dim">
          Not used: <span className="wrap-anywhere text-text">{report.unused_columns.join(", ")}</span>
        </p>
      )}
      <DataTable label="Columns" columns={datasetColumns} rows={report.columns} rowKey={({ name }) => name} />
    </Card>
  );
}

type Bar = Lengths["histogram"][number];

const longestOf = ({ longest: [first] }: Lengths) => first?.[1] ?? 0;

/** How long the examples are. */
export function LengthsCard({ lengths }: { lengths: Lengths }) {
  const { unit } = lengths;
  return (
    <Card aria-label="Lengths">
      <CardHeader title="Lengths" note={`in ${unit} per example`} />
      <Histogram lengths={lengths} />
      <div className="mt-3.5">
        <Facts
          facts={[
            ["Median", countText(lengths.median)],
            ["95th percentile", countText(lengths.percentile_95)],
            ["Longest", countText(longestOf(lengths))],
            [`Total ${unit}`, countText(lengths.total)],
            [`Trained ${unit}`, `${countText(lengths.trained)} · ${lengths.total > 0 ? Math.round((lengths.trained / lengths.total) * 100) : 0} %`],
          ]}
        />
      </div>
    </Card>
  );
}

const range = (bar: Bar, longest: number) => (bar.end > longest + 1 ? `${countText(bar.begin)} or more` : `${countText(bar.begin)}–${countText(bar.end - 1)}`);

function Histogram({ lengths }: { lengths: Lengths }) {
  const { histogram: bars, unit, median, percentile_95: most } = lengths;
  const longest = longestOf(lengths);
  const tallest = Math.max(1, ...bars.map((bar) => bar.rows));
  const [first] = bars;
  if (!first) return null;
  const label = `Histogram of lengths: 50 % of the examples have at most ${countText(median)} ${unit}, 95 % have at most ${countText(most)}, the longest example has ${countText(longest)}.`;
  return (
    <div role="img" aria-label={label}>
      <div className="flex h-28 items-end gap-px border-b border-line-strong">
        {bars.map((bar) => (
          <div key={bar.begin} title={`${range(bar, longest)} ${unit}: ${counted(bar.rows, "row")}`} className="group flex h-full min-w-0 flex-1 items-end hover:bg-white/5">
            {/* A bar that stands for one row of a million is still to be seen. */}
            <div className="w-full rounded-t-[3px] bg-teal group-hover:bg-teal-soft" style={{ height: bar.rows === 0 ? 0 : `max(2px, ${(bar.rows / tallest) * 100}%)` }} />
          </div>
        ))}
      </div>
      <div aria-hidden className="mt-1 flex justify-between text-2xs text-faint tabular-nums">
        <span>{countText(first.begin)}</span>
        <span>{countText(longest)}</span>
      </div>
    </div>
  );
}

const PAGE = 20;

const problemColumns: Column<RowProblem>[] = [
  { header: "Position", lead: true, cell: (problem) => <span className="tabular-nums">{problem.line === null ? `Row ${countText(problem.row)}` : `Line ${countText(problem.line)}`}</span> },
  { header: "Problem", cell: (problem) => <span className="wrap-anywhere">{sentence(`The row ${problem.reason}`)}</span> },
  { header: "Result", end: true, cell: (problem) => <Badge tone={problem.fatal ? "bad" : "violet"}>{problem.fatal ? "skipped" : "used"}</Badge> },
];

/** Every row that is left out or read otherwise than expected, with its line and the reason. */
export function ProblemsCard({ dataset, report }: { dataset: Dataset; report: DatasetReport }) {
  const [page, setPage] = useState(1);
  const { rows_refused: rowsRefused, remarks } = report.problems;
  const kinds = Object.entries(report.problems.kinds).toSorted((a, b) => b[1] - a[1]);
  const hasProblems = rowsRefused + remarks > 0;
  const problems = useQuery({ ...problemsQuery(dataset, (page - 1) * PAGE, PAGE), enabled: hasProblems });
  if (!hasProblems) {
    return (
      <Card aria-label="Problems">
        <CardHeader title="Problems" />
        <p className="flex items-center gap-2 text-dim">
          <CircleCheck aria-hidden className="size-4 text-success-soft" />
          No problems: every row can be used.
        </p>
      </Card>
    );
  }
  return (
    <Card aria-label="Problems">
      <CardHeader title="Problems" note={`${counted(rowsRefused, "row")} skipped${remarks > 0 ? `, ${counted(remarks, "warning")}` : ""}`} />
      {kinds.length > 1 && (
        <ul className="mb-3 grid gap-1 text-sm text-dim">
          {kinds.slice(0, 8).map(([reason, count]) => (
            <li key={reason} className="flex gap-3">
              <span className="w-14 shrink-0 text-right font-[540] text-text tabular-nums">{countText(count)} ×</span>
              <span className="min-w-0 wrap-anywhere">{reason}</span>
            </li>
          ))}
        </ul>
      )}
      <Loaded query={problems} skeleton={<SkeletonRows rows={4} />}>
        {({ items, total, kept }) => (
          <>
            <DataTable label="Problems" columns={problemColumns} rows={items} rowKey={(problem) => `${problem.row}-${problem.reason}`} />
            <PageSteps page={page} pageSize={PAGE} total={kept} onTurn={setPage} />
            {kept < total && <p className="mt-2 text-xs text-faint">The table lists the first {countText(kept)} of {countText(total)} problems. The counts above include all problems.</p>}
          </>
        )}
      </Loaded>
    </Card>
  );
}

const VISIBLE_GROUPS = 5;

/** Rows that say the same as one before them. They stay in; a person decides. */
export function DuplicatesCard({ duplicates: { repeated, groups, first } }: { duplicates: NonNullable<DatasetReport["duplicates"]> }) {
  return (
    <Card aria-label="Duplicates">
      <CardHeader title="Duplicates" note={`${counted(repeated, "duplicate row")} of ${counted(groups, "text")}`} />
      <p className="text-sm text-dim">These rows repeat an earlier row. Duplicates are not removed: the model is trained on every copy.</p>
      <ul className="mt-2 grid gap-1 text-sm">
        {first.slice(0, VISIBLE_GROUPS).map((rows) => (
          <li key={rows.join()} className="tabular-nums">
            Rows {rows.map(countText).join(", ")}
          </li>
        ))}
      </ul>
      {groups > VISIBLE_GROUPS && <p className="mt-1 text-sm text-faint">and {countText(groups - VISIBLE_GROUPS)} more.</p>}
    </Card>
  );
}
