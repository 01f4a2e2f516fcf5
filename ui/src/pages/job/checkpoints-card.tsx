import { useQuery } from "@tanstack/react-query";
import { Save } from "lucide-react";
import { checkpointsQuery } from "@/api/jobs";
import type { Checkpoint, Job } from "@/api/types";
import { Badge } from "@/components/badge";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";
import { TimeAgo } from "@/components/time-ago";
import { bytesText, countText, counted } from "@/text/numbers";
import { CheckpointActions } from "./checkpoint-actions";
import { evalLossText } from "./checkpoint-words";
import { methodOf } from "./tuning";

const columns = (job: Job): Column<Checkpoint>[] => (job.kind === "script" ? FACTS : [...FACTS, actions(job)]);

const FACTS: Column<Checkpoint>[] = [
  {
    header: "Step",
    lead: true,
    cell: (checkpoint) => (
      <span className="inline-flex items-center gap-2 font-[540] tabular-nums">
        {countText(checkpoint.step)}
        {checkpoint.best && <Badge tone="good">best</Badge>}
      </span>
    ),
  },
  { header: "Eval loss", cell: evalLossText },
  { header: "Size", end: true, cell: ({ size }) => (size === null ? null : bytesText(size)) },
  { header: "Saved", end: true, cell: (checkpoint) => <span className="text-dim"><TimeAgo at={checkpoint.savedAt} /></span> },
];

const actions = (job: Job): Column<Checkpoint> => ({
  header: "Actions",
  quiet: true,
  end: true,
  cell: ({ id, step }) => <CheckpointActions onPage subject={{ jobId: job.id, projectId: job.projectId, method: methodOf(job), checkpoint: { id, step } }} />,
});

export function CheckpointsCard({ job }: { job: Job }) {
  const checkpoints = useQuery(checkpointsQuery(job.id));
  return (
    <Card className="h-full">
      <CardHeader title="Checkpoints" note={rhythm(job)} />
      <Loaded query={checkpoints} skeleton={<SkeletonRows rows={3} />}>
        {({ items }) =>
          items.length === 0 ? (
            <NoCheckpoint ended={ENDED.includes(job.status)} />
          ) : (
            <DataTable label="Checkpoints" columns={columns(job)} rows={items} rowKey={(checkpoint) => checkpoint.id} />
          )
        }
      </Loaded>
    </Card>
  );
}

const ENDED: readonly Job["status"][] = ["completed", "failed", "cancelled"];

function NoCheckpoint({ ended }: { ended: boolean }) {
  return ended ? (
    <EmptyState icon={Save} title="No checkpoint was saved.">
      It ended before the first one. Save more often to lose less.
    </EmptyState>
  ) : (
    <EmptyState icon={Save} title="No checkpoint yet.">
      The first one is saved on its own; a running job also saves one when you ask for it.
    </EmptyState>
  );
}

/** "every epoch, and every 50 steps", from the config and what was changed since. */
function rhythm({ config, settings }: Job): string | null {
  const configured = config.checkpoint as { every_epochs?: number; every_steps?: number | null } | undefined;
  const steps = (settings.save_every_steps as number | undefined) ?? configured?.every_steps;
  const epochs = configured?.every_epochs;
  const parts: string[] = [];
  if (epochs) parts.push(epochs === 1 ? "every epoch" : `every ${epochs} epochs`);
  if (steps) parts.push(`every ${counted(steps, "step")}`);
  return parts.length > 0 ? parts.join(", and ") : null;
}
