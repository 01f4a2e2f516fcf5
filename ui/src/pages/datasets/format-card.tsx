import { useState } from "react";
import type { Dataset, DatasetReport } from "@/api/types";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/pages/jobs/facts";
import { sentence } from "@/text/sentence";
import { FORMAT_FIELDS, FORMAT_HELP, FORMAT_NAMES } from "./format-words";
import { MappingForm } from "./mapping-form";

/** How the rows are read, how sure that is, and a way to say it better. */
export function FormatCard({ dataset, report }: { dataset: Dataset; report: DatasetReport }) {
  const [editing, setEditing] = useState(false);
  const { mapping, detection } = report;
  const byHand = dataset.format !== null;
  const unclear = mapping === null;
  return (
    <Card aria-label="Format">
      <CardHeader title="Format">
        {!unclear && !editing && (
          <Button size="small" onClick={() => setEditing(true)}>
            Change
          </Button>
        )}
      </CardHeader>
      {mapping && (
        <>
          <p className="flex flex-wrap items-center gap-x-2.5 gap-y-1 text-lg font-[590]">
            {FORMAT_NAMES[mapping.format]}
            <Badge tone={byHand || detection.confidence >= 0.9 ? "good" : "violet"}>{byHand ? "said by hand" : `${Math.round(detection.confidence * 100)} % sure`}</Badge>
          </p>
          <p className="mt-0.5 mb-3 text-sm text-dim">
            {byHand ? "" : `${sentence(detection.reason)} `}
            {FORMAT_HELP[mapping.format]}
          </p>
        </>
      )}
      {unclear && (
        <p className="mb-3.5 text-dim">
          <span className="font-[560] text-text">Which column is what?</span> {sentence(detection.reason)} Nothing is trained before you say it.
        </p>
      )}
      {unclear || editing ? (
        <MappingForm dataset={dataset} report={report} onDone={() => setEditing(false)} />
      ) : (
        <Facts facts={columnFacts(mapping)} />
      )}
    </Card>
  );
}

function columnFacts(mapping: NonNullable<DatasetReport["mapping"]>): [string, string][] {
  return FORMAT_FIELDS[mapping.format].flatMap(({ name, label }) => {
    const column = mapping.columns[name];
    return column === undefined ? [] : [[label, column] as [string, string]];
  });
}
