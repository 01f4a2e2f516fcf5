import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { text } from "@/api/free-json";
import { scriptQuery } from "@/api/jobs";
import type { Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { CopyButton } from "@/components/copy-button";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";

/** The script that the job runs, to read or to run by hand. Asked for when somebody wants to see it. */
export function ScriptCard({ job }: { job: Job }) {
  const [open, setOpen] = useState(false);
  const script = useQuery({ ...scriptQuery(job.id), enabled: open });
  const name = (job.kind === "script" && text(job.config.entry)) || "train.py";
  return (
    <Card>
      <CardHeader title="Script">
        <div className="flex items-center gap-2">
          <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="rounded-md px-2 py-1 text-xs text-violet-soft underline-offset-3 hover:underline">
            {open ? `Hide ${name}` : `Show ${name}`}
          </button>
          {script.data && <CopyButton text={script.data.script} label={`Copy ${name}`} />}
        </div>
      </CardHeader>
      <p className="text-sm text-dim">{job.kind === "script" ? "The job runs this script as it was sent, in a folder of its own." : "The job runs this script beside its config.json. By hand it gives the same result."}</p>
      {open && (
        <Loaded query={script} skeleton={<SkeletonRows rows={6} />}>
          {({ script: source }) => (
            // Wrapped: what scrolls sideways is out of reach for a keyboard.
            <pre className="mt-3 rounded-control border border-line bg-rail p-3 font-mono text-xs break-words whitespace-pre-wrap text-[#c3cad5]">{source}</pre>
          )}
        </Loaded>
      )}
    </Card>
  );
}
