import { useQuery } from "@tanstack/react-query";
import { machinesQuery } from "@/api/jobs";
import type { Job } from "@/api/types";
import { Notice } from "@/components/notice";
import { findingsOf } from "./findings";
import type { Connection } from "./use-job-live";

export function FindingsStrip({ job, connection }: { job: Job; connection: Connection }) {
  const machines = useQuery({ ...machinesQuery, enabled: job.status === "queued", refetchInterval: 5_000 });
  const seen = machines.data && machines.data.items.length > 0;
  const findings = findingsOf(job, seen);
  return (
    <div role="status" className="grid gap-2.5 not-empty:mt-3">
      {connection === "lost" && (
        <Notice tone="attention">
          <b className="mr-2 font-[570]">Connection lost.</b>
          <span className="text-dim">Trying again by itself. The training goes on; what you missed is filled in.</span>
        </Notice>
      )}
      {findings.map((finding) => (
        <Notice key={finding.key} tone={finding.tone} className="break-words">
          <b className="mr-2 font-[570]">{finding.title}</b>
          <span className="text-dim">{finding.text}</span>
          {finding.key === "failed" && job.errorCode && <code className="ml-2 font-mono text-xs text-danger-soft">{job.errorCode}</code>}
        </Notice>
      ))}
    </div>
  );
}
