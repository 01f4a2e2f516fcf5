/** The checkpoints of a job and what can be done with one. */
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { MessagesSquare, Save } from "lucide-react";
import { type ReactNode, useState } from "react";
import { measured } from "@/api/summary";
import { checkpointArchiveAddress, checkpointsQuery, saveJob } from "@/api/jobs";
import type { Checkpoint, Job, JobStatus } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable, PageSteps } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { Facts } from "@/components/figures";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Menu } from "@/components/menu";
import { Badge } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast, useAction } from "@/components/toasts";
import { optimizationsIn, trainedText, trainingTime } from "@/text/checkpoint-details";
import { bytesText, counted, countText, metricText } from "@/text/numbers";
import { actionsFor } from "./action-buttons";
import { BranchDialog, DeleteCheckpointDialog, ResumeFromDialog } from "./checkpoint-dialogs";
import { EvaluateDialog } from "./evaluation-card";
import { ExportDialog } from "./export-card";
import { methodOf, methodText } from "./tuning-card";

export function evalLossText({ metrics }: Pick<Checkpoint, "metrics">): string | null {
  const value = measured(metrics["eval/loss"] ?? metrics.eval_loss);
  return value === null ? null : metricText(value);
}

export type Subject = {
  jobId: string;
  projectId: string;
  /** Full fine-tuning has no adapter to export. */
  method: string | null;
  /** The state of the job: what runs keeps its checkpoints itself. */
  status?: JobStatus;
  /** Null for the finished model. */
  checkpoint: { id: string; step: number } | null;
  /** Other checkpoints of the job: the mean of all is exported. */
  averageWith?: { id: string; step: number }[];
};

const RESUMABLE: readonly JobStatus[] = ["paused", "failed", "cancelled"];
const DELETABLE: readonly JobStatus[] = [...RESUMABLE, "completed"];

/** What can be done with a checkpoint, in a row of a table. */
export function CheckpointActions({ subject, onPage, details }: { subject: Subject; onPage: boolean; details?: Checkpoint["details"] }) {
  const [open, setOpen] = useState<"evaluate" | "export" | "details" | "branch" | "resume" | "delete" | null>(null);
  const navigate = useNavigate();
  const { jobId, projectId, checkpoint, status } = subject;
  const name = checkpoint ? `step ${countText(checkpoint.step)}` : "the final model";
  const close = () => setOpen(null);
  // From another page, what was started is shown where it belongs.
  const started = () => {
    close();
    if (!onPage || open === "evaluate") void navigate({ to: "/projects/$projectId/jobs/$jobId", params: { projectId, jobId }, search: { tab: open === "export" ? "checkpoints" : "evaluate" } });
  };
  return (
    <span className="inline-flex items-center gap-1">
      <Button asChild variant="ghost" size="small">
        <Link to="/playground" search={{ job: jobId, checkpoint: checkpoint?.id }} aria-label={`Open ${name} in playground`}>
          <MessagesSquare aria-hidden />
          <span className="max-md:sr-only">Playground</span>
        </Link>
      </Button>
      <Menu
        label={`More actions for ${name}`}
        items={[
          ...(details ? [{ text: "Show details", onChoose: () => setOpen("details") }] : []),
          { text: "Evaluate", onChoose: () => setOpen("evaluate") },
          { text: "Export", onChoose: () => setOpen("export") },
          ...(checkpoint
            ? [
                { text: "Branch with changed settings", onChoose: () => setOpen("branch") },
                ...(status && RESUMABLE.includes(status) ? [{ text: "Resume from here", onChoose: () => setOpen("resume") }] : []),
                {
                  text: "Download",
                  link: (text: ReactNode) => (
                    <a href={checkpointArchiveAddress(jobId, checkpoint.id)} download>
                      {text}
                    </a>
                  ),
                },
                ...(status && DELETABLE.includes(status) ? [{ text: "Delete", danger: true, onChoose: () => setOpen("delete") }] : []),
              ]
            : []),
          { text: "Compare this run", onChoose: () => void navigate({ to: "/runs", search: { run: jobId } }) },
        ]}
      />
      {checkpoint && open === "branch" && <BranchDialog jobId={jobId} checkpoint={checkpoint} onClose={close} />}
      {checkpoint && open === "resume" && <ResumeFromDialog jobId={jobId} checkpoint={checkpoint} onClose={close} />}
      {checkpoint && open === "delete" && <DeleteCheckpointDialog jobId={jobId} checkpoint={checkpoint} onClose={close} />}
      {open === "evaluate" && <EvaluateDialog subject={subject} onClose={close} onStarted={started} />}
      {open === "details" && details && <DetailsDialog name={name} details={details} onClose={close} />}
      {open === "export" && <ExportDialog subject={subject} onClose={close} onStarted={started} />}
    </span>
  );
}

/** How a checkpoint was trained: how long, what of it, and what made that fast or small. */
export function detailFacts(details: Checkpoint["details"]): [string, string][] {
  const facts: [string, string | null][] = [
    ["Training time", trainingTime(details)],
    ["Trained parameters", trainedText(details)],
    ["Method", methodText(details.method)],
    ["Precision", details.precision],
  ];
  return facts.flatMap(([name, value]) => (value === null ? [] : [[name, value] as [string, string]]));
}

function DetailsDialog({ name, details, onClose }: { name: string; details: Checkpoint["details"]; onClose: () => void }) {
  const facts = detailFacts(details);
  const optimizations = optimizationsIn(details);
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={`Checkpoint at ${name}`}>
      {facts.length === 0 ? <p className="text-dim">The run recorded no details for this checkpoint. It was saved by an earlier version.</p> : <Facts facts={facts} />}
      {optimizations.length > 0 && (
        <>
          <h3 className="mt-4 mb-1.5 text-xs text-dim">Optimizations in force</h3>
          <ul className="flex flex-wrap gap-1.5">
            {optimizations.map((each) => (
              <li key={each}>
                <Badge tone="teal">{each}</Badge>
              </li>
            ))}
          </ul>
        </>
      )}
    </Dialog>
  );
}

/** Which checkpoints are chosen for an average. Null where there is nothing to average. */
type Choice = { chosen: ReadonlySet<string>; toggle: (id: string) => void } | null;

const columns = (job: Job, choice: Choice): Column<Checkpoint>[] => [stepColumn(choice), ...FACTS, ...(job.kind === "train" ? [actions(job)] : [])];

const stepColumn = (choice: Choice): Column<Checkpoint> => ({
  header: "Step",
  lead: true,
  cell: ({ id, step, best }) => (
    <span className="inline-flex items-center gap-2 font-[540] tabular-nums">
      {choice && <input type="checkbox" aria-label={`Choose step ${countText(step)}`} checked={choice.chosen.has(id)} onChange={() => choice.toggle(id)} className="size-4 shrink-0 accent-violet" />}
      {/* On a phone there is no heading above it. */}
      <span>
        <span aria-hidden className="md:hidden">
          Step{" "}
        </span>
        {countText(step)}
      </span>
      {best && <Badge tone="good">best</Badge>}
    </span>
  ),
});

const FACTS: Column<Checkpoint>[] = [
  { header: "Eval loss", cell: evalLossText },
  { header: "Training time", end: true, cell: ({ details }) => trainingTime(details) && <span className="whitespace-nowrap">{trainingTime(details)}</span> },
  { header: "Size", end: true, cell: ({ size }) => (size === null ? null : <span className="whitespace-nowrap">{bytesText(size)}</span>) },
  { header: "Saved", end: true, cell: (checkpoint) => <span className="text-dim"><TimeAgo at={checkpoint.saved_at} /></span> },
];

const actions = (job: Job): Column<Checkpoint> => ({
  header: "Actions",
  quiet: true,
  end: true,
  cell: ({ id, step, details }) => <CheckpointActions onPage details={details} subject={{ jobId: job.id, projectId: job.project_id, method: methodOf(job), status: job.status, checkpoint: { id, step } }} />,
});

const PAGE = 8;

export function CheckpointsCard({ job }: { job: Job }) {
  const checkpoints = useQuery(checkpointsQuery(job.id));
  const [page, setPage] = useState(1);
  const [chosenIds, setChosen] = useState<ReadonlySet<string>>(new Set());
  // One that is deleted is no longer chosen.
  const chosen = new Set(checkpoints.data?.items.map(({ id }) => id).filter((id) => chosenIds.has(id)));
  const toggle = (id: string) => setChosen((before) => new Set(before.has(id) ? [...before].filter((each) => each !== id) : [...before, id]));
  return (
    <Card>
      <CardHeader title="Checkpoints" note={rhythm(job)} />
      <Loaded query={checkpoints} skeleton={<SkeletonRows rows={3} />}>
        {({ items }) =>
          items.length === 0 ? (
            <NoCheckpoint job={job} />
          ) : (
            <>
              <DataTable label="Checkpoints" columns={columns(job, job.kind === "train" && items.length > 1 ? { chosen, toggle } : null)} rows={items.slice((page - 1) * PAGE, page * PAGE)} rowKey={(checkpoint) => checkpoint.id} />
              <PageSteps page={page} pageSize={PAGE} total={items.length} onTurn={setPage} />
              {chosen.size > 0 && <AverageBar job={job} chosen={items.filter(({ id }) => chosen.has(id))} onClear={() => setChosen(new Set())} />}
            </>
          )
        }
      </Loaded>
    </Card>
  );
}

/** What is done with several checkpoints at once. */
function AverageBar({ job, chosen, onClear }: { job: Job; chosen: Checkpoint[]; onClear: () => void }) {
  const [open, setOpen] = useState(false);
  const [first, ...others] = chosen.toSorted((one, other) => one.step - other.step);
  return (
    <div className="mt-3 flex flex-wrap items-center justify-end gap-2 text-sm text-dim">
      <span role="status" className="mr-2">
        {counted(chosen.length, "checkpoint")} chosen{others.length === 0 && ". Choose two or more to average them."}
      </span>
      <Button size="small" onClick={onClear}>
        Clear
      </Button>
      <Button size="small" variant="primary" disabled={others.length === 0} onClick={() => setOpen(true)}>
        Average and export
      </Button>
      {open && first && (
        <ExportDialog
          subject={{ jobId: job.id, projectId: job.project_id, method: methodOf(job), checkpoint: first, averageWith: others }}
          onClose={() => setOpen(false)}
          onStarted={onClear}
        />
      )}
    </div>
  );
}

const ENDED: readonly Job["status"][] = ["completed", "failed", "cancelled"];

function NoCheckpoint({ job }: { job: Job }) {
  const save = useAction(async () => {
    await saveJob(job.id);
    toast("The job saves a checkpoint at the next step.");
  });
  return ENDED.includes(job.status) ? (
    <EmptyState icon={Save} title="No checkpoint was saved.">
      {job.failed_on_data ? "The job failed on its data before its first step." : "The job ended before its first checkpoint. Save checkpoints more often to lose less work."}
    </EmptyState>
  ) : (
    <EmptyState
      icon={Save}
      title="No checkpoint yet."
      action={
        actionsFor(job).includes("save") && (
          <Button pending={save.pending} onClick={save.run}>
            Save checkpoint
          </Button>
        )
      }
    >
      The job saves checkpoints automatically.
    </EmptyState>
  );
}

/** "every epoch, and every 50 steps", from the config and what was changed since. */
function rhythm({ config, settings }: Job): string | null {
  const steps = settings.save_every_steps ?? config?.checkpoint.every_steps;
  const epochs = config?.checkpoint.every_epochs;
  const parts: string[] = [];
  if (epochs) parts.push(epochs === 1 ? "every epoch" : `every ${epochs} epochs`);
  if (steps) parts.push(`every ${counted(steps, "step")}`);
  return parts.length > 0 ? parts.join(", and ") : null;
}
