import { useQuery } from "@tanstack/react-query";
import { CircleCheck } from "lucide-react";
import { useState } from "react";
import { problemsQuery } from "@/api/datasets";
import type { Dataset, DatasetReport, RowProblem } from "@/api/types";
import { Badge } from "@/components/badge";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { Loaded } from "@/components/loaded";
import { PageSteps } from "@/components/page-steps";
import { SkeletonRows } from "@/components/skeleton";
import { countText, counted } from "@/text/numbers";
import { sentence } from "@/text/sentence";

const PAGE = 20;

const columns: Column<RowProblem>[] = [
  { header: "Where", lead: true, cell: (problem) => <span className="tabular-nums">{problem.line === null ? `Row ${countText(problem.row)}` : `Line ${countText(problem.line)}`}</span> },
  { header: "What", cell: (problem) => <span className="break-words">{sentence(`It ${problem.reason}`)}</span> },
  { header: "So", end: true, cell: (problem) => <Badge tone={problem.fatal ? "bad" : "violet"}>{problem.fatal ? "left out" : "used"}</Badge> },
];

/** Every row that is left out or read otherwise than expected, with its line and the reason. */
export function ProblemsCard({ dataset, report }: { dataset: Dataset; report: DatasetReport }) {
  const [page, setPage] = useState(1);
  const { rowsRefused, remarks } = report.problems;
  const kinds = Object.entries(report.problems.kinds).toSorted((a, b) => b[1] - a[1]);
  const hasProblems = rowsRefused + remarks > 0;
  const problems = useQuery({ ...problemsQuery(dataset, (page - 1) * PAGE, PAGE), enabled: hasProblems });
  if (!hasProblems) {
    return (
      <Card aria-label="Problems">
        <CardHeader title="Problems" />
        <p className="flex items-center gap-2 text-dim">
          <CircleCheck aria-hidden className="size-4 text-success-soft" />
          None: every row can be read.
        </p>
      </Card>
    );
  }
  return (
    <Card aria-label="Problems">
      <CardHeader title="Problems" note={`${counted(rowsRefused, "row")} left out${remarks > 0 ? `, ${counted(remarks, "remark")}` : ""}`} />
      {kinds.length > 1 && (
        <ul className="mb-3 grid gap-1 text-sm text-dim">
          {kinds.slice(0, 8).map(([reason, count]) => (
            <li key={reason} className="flex gap-3">
              <span className="w-14 shrink-0 text-right font-[540] text-text tabular-nums">{countText(count)} ×</span>
              <span className="min-w-0 break-words">{reason}</span>
            </li>
          ))}
        </ul>
      )}
      <Loaded query={problems} skeleton={<SkeletonRows rows={4} />}>
        {({ items, total, kept }) => (
          <>
            <DataTable label="Problems" columns={columns} rows={items} rowKey={(problem) => `${problem.row}-${problem.reason}`} />
            <PageSteps page={page} pageSize={PAGE} total={kept} onTurn={setPage} />
            {kept < total && <p className="mt-2 text-xs text-faint">The first {countText(kept)} of {countText(total)} are listed; the counts are of all.</p>}
          </>
        )}
      </Loaded>
    </Card>
  );
}
