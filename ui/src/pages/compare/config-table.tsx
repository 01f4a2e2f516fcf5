import { useState } from "react";
import type { Difference } from "@/api/task-types";
import type { Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { counted } from "@/text/numbers";
import { allFields, pathText, valueText } from "./config-rows";
import { SideTable } from "./side-table";

type ConfigTableProps = { jobs: Job[]; labels: string[]; differences: Difference[] };

/** Where the configs differ; everything else only on request. */
export function ConfigTable({ jobs, labels, differences }: ConfigTableProps) {
  const [all, setAll] = useState(false);
  const rows = all ? allFields(jobs) : differences;
  return (
    <Card>
      <CardHeader title="Config" note={differences.length === 0 ? "no difference" : counted(differences.length, "difference")}>
        <button type="button" aria-pressed={all} onClick={() => setAll(!all)} className="rounded-md px-2 py-1 text-xs text-violet-soft underline-offset-3 hover:underline">
          {all ? "Show only differences" : "Show all fields"}
        </button>
      </CardHeader>
      {rows.length === 0 ? (
        <p className="py-4 text-center text-dim">These runs were started with the same config.</p>
      ) : (
        <SideTable label="Configs of the runs" labels={labels} rows={rows.map(({ path, values }) => ({ name: pathText(path), cells: values.map(valueText) }))} />
      )}
    </Card>
  );
}
