import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { archiveAddress, modelFileAddress, modelFilesQuery } from "@/api/jobs";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { DataTable } from "@/components/data-table";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";
import { bytesText } from "@/text/numbers";

/** The finished model: as one archive, or file by file. */
export function ModelCard({ job }: { job: Job }) {
  const files = useQuery(modelFilesQuery(job.id));
  return (
    <Card>
      <CardHeader title="Model" note="in the layout of Hugging Face transformers" />
      <Loaded query={files} skeleton={<SkeletonRows rows={3} />}>
        {({ items, archiveSize }) => (
          <>
            <DataTable
              label="Files of the model"
              rows={items}
              rowKey={(file) => file.path}
              columns={[
                {
                  header: "File",
                  lead: true,
                  cell: (file) => (
                    <a href={modelFileAddress(job.id, file.path)} download className="font-mono text-xs break-all underline-offset-3 hover:text-violet-soft hover:underline">
                      {file.path}
                    </a>
                  ),
                },
                { header: "Size", end: true, cell: (file) => bytesText(file.size) },
              ]}
            />
            <Button asChild className="mt-3">
              <a href={archiveAddress(job.id)} download>
                <Download aria-hidden />
                All as one archive, {bytesText(archiveSize)}
              </a>
            </Button>
          </>
        )}
      </Loaded>
    </Card>
  );
}
