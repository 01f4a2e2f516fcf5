import type { Job } from "@/api/types";
import { Badge } from "@/components/badge";
import { Card, CardHeader } from "@/components/card";
import type { CurveStore } from "@/curves/curve-store";
import { useRecent } from "@/curves/recent";
import { Facts } from "@/pages/jobs/facts";
import { countText } from "@/text/numbers";
import { optimizationsOf, tuningFacts } from "./tuning";

/** What is tuned, on what, and what makes it fast. Absent for a model that is trained from nothing. */
export function TuningCard({ job, store }: { job: Job; store: CurveStore }) {
  const speed = useRecent(store, "train/tokens_per_second");
  const optimizations = optimizationsOf(job);
  const facts = tuningFacts(job);
  if (speed !== null) facts.push(["Measured speed", `${countText(speed)} tokens/s`]);
  return (
    <Card>
      <CardHeader title="Fine-tuning" />
      <div className="gap-x-10 md:columns-2 [&_dl]:contents [&_dl>div]:mb-1.5 [&_dl>div]:break-inside-avoid">
        <Facts facts={facts} />
      </div>
      {optimizations.length > 0 && (
        <p className="mt-3 flex flex-wrap items-center gap-1.5 text-xs text-dim">
          In force:
          {optimizations.map((name) => (
            <Badge key={name} tone="teal">
              {name}
            </Badge>
          ))}
        </p>
      )}
    </Card>
  );
}
