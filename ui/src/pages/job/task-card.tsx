/** The card of a task on a job's page, and the progress of a task. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { LucideIcon } from "lucide-react";
import { type ReactNode, useState } from "react";
import { progressOf } from "@/api/summary";
import { cancelJob, isResting, jobQuery } from "@/api/jobs";
import { forgetTasks, tasksQuery } from "@/api/tasks";
import type { Job, JobListItem } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ProgressBar } from "@/components/figures";
import { Select } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { exactTime } from "@/components/time-ago";
import { useAction } from "@/components/toasts";
import { statusText } from "@/pages/jobs/job-table";

/** How often a task that is under way is asked for. */
const TASK_EVERY = 1_000;

type TaskCardProps = {
  job: Job;
  kind: "evaluate" | "export";
  title: string;
  icon: LucideIcon;
  /** What it would show, while there is nothing. */
  invitation: { title: string; text: string };
  /** What the button says. */
  action: string;
  /** False while the run has nothing to work with. */
  possible: boolean;
  dialog: (close: () => void) => ReactNode;
  children: (task: Job) => ReactNode;
};

/** The tasks of one kind about a run: the newest, or the one chosen; and a way to start another. */
export function TaskCard({ job, kind, title, icon, invitation, action, possible, dialog, children }: TaskCardProps) {
  const tasks = useQuery(tasksQuery(job.id, kind));
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState<string | null>(null);
  const items = tasks.data?.items ?? [];
  const start = (variant: "primary" | "outline") => (
    <Button variant={variant} size={variant === "primary" ? "normal" : "small"} disabled={!possible} onClick={() => setOpen(true)}>
      {action}
    </Button>
  );
  return (
    <Card>
      <CardHeader title={title}>
        {items.length > 0 && (
          <div className="flex flex-wrap items-center gap-2">
            {items.length > 1 && (
              <Select aria-label={`Choose ${title.toLowerCase()}`} className="w-64 max-sm:w-full" value={chosen ?? items[0]?.id} onChange={(event) => setChosen(event.target.value)} options={items.map((task) => [task.id, optionText(task)] as const)} />
            )}
            {start("outline")}
          </div>
        )}
      </CardHeader>
      <Loaded query={tasks} skeleton={<SkeletonRows rows={2} />}>
        {({ items: loaded }) => {
          const current = loaded.find((task) => task.id === chosen) ?? loaded[0];
          if (!current) {
            return (
              <EmptyState icon={icon} title={invitation.title} action={possible && start("primary")} small>
                {possible ? invitation.text : "The final model is available when the run is finished. Until then, use a checkpoint of this run."}
              </EmptyState>
            );
          }
          return <ChosenTask key={current.id} id={current.id} resting={isResting(current.status)} show={children} />;
        }}
      </Loaded>
      {open &&
        dialog(() => {
          setOpen(false);
          setChosen(null);
        })}
    </Card>
  );
}

/** A list has no results: the task that is looked at is loaded whole. */
function ChosenTask({ id, resting, show }: { id: string; resting: boolean; show: (task: Job) => ReactNode }) {
  const task = useQuery({ ...jobQuery(id), refetchInterval: (query) => (query.state.data?.result || (resting && query.state.data && isResting(query.state.data.status)) ? false : TASK_EVERY) });
  return (
    <Loaded query={task} skeleton={<SkeletonRows rows={2} />}>
      {(loaded) => (loaded.result === null ? <TaskProgress task={loaded} /> : show(loaded))}
    </Loaded>
  );
}

function optionText(task: JobListItem): string {
  const form = task.export_form === "gguf" ? "GGUF, " : task.export_form ? `${task.export_form}, ` : "";
  return `${form}${exactTime(new Date(task.created_at))}${task.status === "completed" ? "" : `, ${statusText(task.status).toLowerCase()}`}`;
}

const PHASES: Record<string, string> = {
  load: "Loading the model.",
  train: "Running.",
  eval: "Evaluating.",
  evaluate: "Evaluating.",
  generate: "Generating answers.",
  save: "Writing files.",
  average: "Averaging the checkpoints.",
  merge: "Merging the weights.",
  replay: "Testing prompts.",
  push: "Pushing to the Hugging Face Hub.",
};

/** How far a task is, and how it can be stopped; how it ended when it did not come to an answer. */
export function TaskProgress({ task }: { task: Job }) {
  if (task.status === "failed") {
    return (
      <Notice tone="bad" className="wrap-anywhere">
        <b className="mr-2 font-[570]">Failed.</b>
        <span className="text-dim">{task.error_message ?? "No reason was recorded."}</span> <TaskLink task={task}>Read the output</TaskLink>
      </Notice>
    );
  }
  if (isResting(task.status)) return <Notice>Stopped before there was a result.</Notice>;
  return (
    <div role="status" className="grid gap-2">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-1">
        <p className="min-w-0 flex-1 text-dim">{wordsFor(task)}</p>
        <TaskLink task={task}>Output</TaskLink>
        <StopButton task={task} />
      </div>
      <ProgressBar value={progressOf({ status: task.status, ...task.summary })} label="Progress" />
    </div>
  );
}

function wordsFor(task: Job): string {
  if (task.status === "queued") return (task.queue_position ?? 1) > 1 ? `In the queue, position ${task.queue_position}.` : "In the queue. Starts when a device is free.";
  if (task.status === "provisioning") return "Starting.";
  if (task.status === "cancelling") return "Stopping.";
  const { phase } = task.summary;
  return PHASES[phase ?? ""] ?? "Running.";
}

function TaskLink({ task, children }: { task: Job; children: string }) {
  return (
    <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId: task.project_id, jobId: task.id }} className="text-sm text-violet-soft underline-offset-3 hover:underline">
      {children}
    </Link>
  );
}

export function StopButton({ task }: { task: Job }) {
  const { pending, run } = useAction(async () => {
    await cancelJob(task.id);
    await forgetTasks();
  });
  if (isResting(task.status) || task.status === "cancelling") return null;
  return (
    <Button size="small" pending={pending} onClick={run}>
      Stop
    </Button>
  );
}
