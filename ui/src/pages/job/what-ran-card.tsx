/** What ran: commit and changes, command line, packages, machine, configs and datasets of a run. */
import { useQuery } from "@tanstack/react-query";
import { whatRanQuery } from "@/api/jobs";
import { CopyButton } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/components/figures";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { isEmpty, whatRanFacts, whatRanTexts } from "@/text/what-ran";

export function WhatRanCard({ jobId }: { jobId: string }) {
  const found = useQuery(whatRanQuery(jobId));
  return (
    <Card>
      <CardHeader title="What ran">{found.data?.command?.length ? <CopyButton text={found.data.command.join(" ")} label="Copy the command line" /> : null}</CardHeader>
      <Loaded query={found} skeleton={<SkeletonRows rows={3} />}>
        {(ran) =>
          isEmpty(ran) ? (
            <p className="text-dim">The run has not recorded what ran. A Reporter in the script does it at its start.</p>
          ) : (
            <>
              <Facts wide facts={whatRanFacts(ran)} />
              {whatRanTexts(ran).map(([title, text]) => (
                <details key={title} className="mt-3">
                  <summary className="cursor-pointer text-sm text-violet-soft">{title}</summary>
                  <pre className="mt-2 max-h-96 overflow-auto rounded-control border border-line bg-rail p-3 font-mono text-xs text-code">{text}</pre>
                </details>
              ))}
            </>
          )
        }
      </Loaded>
    </Card>
  );
}
