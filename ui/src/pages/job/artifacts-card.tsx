import { useQuery } from "@tanstack/react-query";
import { Download, FileBox } from "lucide-react";
import { artifactAddress, artifactsArchiveAddress, artifactsQuery } from "@/api/jobs";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { DataTable } from "@/components/data-table";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";
import { bytesText, counted } from "@/text/numbers";

const VISIBLE_ROWS = 8;

/** What a script wrote or changed in its folder, while it runs as well. */
export function ArtifactsCard({ job }: { job: Job }) {
  const files = useQuery(artifactsQuery(job));
  return (
    <Card className="h-full">
      <CardHeader title="Files it made" note={files.data && files.data.items.length > 0 && counted(files.data.items.length, "file")} />
      <Loaded query={files} skeleton={<SkeletonRows rows={3} />}>
        {({ items, archiveSize }) =>
          items.length === 0 ? (
            <EmptyState icon={FileBox} title="No file yet.">
              What the script writes into its folder appears here: checkpoints, logs, samples.
            </EmptyState>
          ) : (
            <>
              <DataTable
                label="Files it made"
                rows={items.slice(0, VISIBLE_ROWS)}
                rowKey={(file) => file.path}
                columns={[
                  {
                    header: "File",
                    lead: true,
                    cell: (file) => (
                      <a href={artifactAddress(job.id, file.path)} download className="font-mono text-xs break-all underline-offset-3 hover:text-violet-soft hover:underline">
                        {file.path}
                      </a>
                    ),
                  },
                  { header: "Size", end: true, cell: (file) => bytesText(file.size) },
                ]}
              />
              {items.length > VISIBLE_ROWS && <p className="mt-2 text-xs text-faint">And {items.length - VISIBLE_ROWS} more, in the archive.</p>}
              <Button asChild className="mt-3">
                <a href={artifactsArchiveAddress(job.id)} download>
                  <Download aria-hidden />
                  All as one archive, {bytesText(archiveSize)}
                </a>
              </Button>
            </>
          )
        }
      </Loaded>
    </Card>
  );
}
