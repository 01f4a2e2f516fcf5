import type { DatasetReport } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { countText, counted } from "@/text/numbers";

const VISIBLE_GROUPS = 5;

/** Rows that say the same as one before them. They stay in; a person decides. */
export function DuplicatesCard({ duplicates: { repeated, groups, first } }: { duplicates: NonNullable<DatasetReport["duplicates"]> }) {
  return (
    <Card aria-label="Duplicates">
      <CardHeader title="Duplicates" note={`${counted(repeated, "row")} of ${counted(groups, "text")}`} />
      <p className="text-sm text-dim">These rows repeat an earlier one. They are trained as often as they stand in the file.</p>
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
