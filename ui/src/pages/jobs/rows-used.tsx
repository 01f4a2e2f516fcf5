import type { Job } from "@/api/types";
import { countText } from "@/text/numbers";

/** Of a run that uses only some rows of its data: how many. */
export function RowsUsed({ job: { rowsUsed, rowsTotal } }: { job: Pick<Job, "rowsUsed" | "rowsTotal"> }) {
  if (rowsUsed === null || rowsTotal === null || rowsUsed >= rowsTotal) return null;
  return (
    <span className="text-sm font-normal tracking-normal text-warning">
      {countText(rowsUsed)} of {countText(rowsTotal)} rows used
    </span>
  );
}
