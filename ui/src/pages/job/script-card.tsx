import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { scriptQuery } from "@/api/jobs";
import type { Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { CopyButton } from "@/components/copy-button";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";

/** The script that the job runs, to read or to run by hand. Asked for when somebody wants to see it. */
export function ScriptCard({ job }: { job: Job }) {
  const [shown, setShown] = useState(false);
  const script = useQuery({ ...scriptQuery(job.id), enabled: shown });
  return (
    <Card>
      <CardHeader title="Script">
        <div className="flex items-center gap-2">
          <button type="button" aria-expanded={shown} onClick={() => setShown(!shown)} className="rounded-md px-2 py-1 text-xs text-violet-soft underline-offset-3 hover:underline">
            {shown ? "Hide train.py" : "Show train.py"}
          </button>
          {script.data && <CopyButton text={script.data.script} label="Copy train.py" />}
        </div>
      </CardHeader>
      <p className="text-sm text-dim">The job runs this script beside its config.json. By hand it gives the same result.</p>
      {shown && (
        <Loaded query={script} skeleton={<SkeletonRows rows={6} />}>
          {({ script: text }) => (
            // Wrapped: what scrolls sideways is out of reach for a keyboard.
            <pre className="mt-3 rounded-control border border-line bg-rail p-3 font-mono text-xs break-words whitespace-pre-wrap text-[#c3cad5]">{text}</pre>
          )}
        </Loaded>
      )}
    </Card>
  );
}
