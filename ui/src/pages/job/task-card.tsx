/** The card of a task on a job's page, and the progress of a task. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { LucideIcon } from "lucide-react";
import { type ReactNode, useCallback, useState } from "react";
import { progressOf } from "@/api/job-summary";
import { cancelJob, isResting } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import { forgetTasks, tasksQuery } from "@/api/tasks";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ProgressBar } from "@/components/figures";
import { Select } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { exactTime } from "@/components/time-ago";
import { toastFailure } from "@/components/toasts";
import { statusText } from "@/pages/jobs/job-table";

type TaskCardProps = {
  job: Job;
  kind: "evaluate" | "export";
  /** Where a link can point to. */
  anchor: string;
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
export function TaskCard({ job, kind, anchor, title, icon, invitation, action, possible, dialog, children }: TaskCardProps) {
  const tasks = useQuery(tasksQuery(job.id, kind));
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState<string | null>(null);
  const items = tasks.data?.items ?? [];
  // The page is loaded after its address: by then the browser has given up looking for the anchor.
  const comeInto = useCallback((card: HTMLElement | null) => void (window.location.hash === `#${anchor}` && card?.scrollIntoView()), [anchor]);
  const start = (variant: "primary" | "outline") => (
    <Button variant={variant} size={variant === "primary" ? "normal" : "small"} disabled={!possible} onClick={() => setOpen(true)}>
      {action}
    </Button>
  );
  return (
    <Card id={anchor} ref={comeInto} className="scroll-mt-20">
      <CardHeader title={title}>
        {items.length > 0 && (
          <div className="flex flex-wrap items-center gap-2">
            {items.length > 1 && (
              <Select aria-label={`Which ${title.toLowerCase()}`} className="w-64 max-sm:w-full" value={chosen ?? items[0]?.id} onChange={(event) => setChosen(event.target.value)} options={items.map((task) => [task.id, optionText(task)] as const)} />
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
              <EmptyState icon={icon} title={invitation.title} action={possible && start("primary")} small={!possible}>
                {possible ? invitation.text : "This becomes possible when the run is finished; before that, from one of its checkpoints."}
              </EmptyState>
            );
          }
          return current.result === null ? <TaskProgress task={current} /> : children(current);
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

function optionText(task: Job): string {
  const form = task.config.form === "gguf" ? "GGUF, " : typeof task.config.form === "string" ? `${task.config.form}, ` : "";
  return `${form}${exactTime(new Date(task.createdAt))}${task.status === "completed" ? "" : `, ${statusText(task.status).toLowerCase()}`}`;
}

const PHASES: Record<string, string> = {
  load: "Loading the model.",
  train: "At work.",
  eval: "Measuring.",
  evaluate: "Measuring.",
  generate: "Answering prompts.",
  save: "Writing files.",
  merge: "Merging.",
  replay: "Replaying prompts.",
  push: "Pushing to the hub.",
};

/** How far a task is, and how it can be stopped; how it ended when it did not come to an answer. */
export function TaskProgress({ task }: { task: Job }) {
  if (task.status === "failed") {
    return (
      <Notice tone="bad" className="break-words">
        <b className="mr-2 font-[570]">It failed.</b>
        <span className="text-dim">{task.errorMessage ?? "No reason was recorded."}</span> <TaskLink task={task}>Read its output</TaskLink>
      </Notice>
    );
  }
  if (isResting(task.status)) return <Notice>It was stopped before it came to an answer.</Notice>;
  return (
    <div role="status" className="grid gap-2">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-1">
        <p className="min-w-0 flex-1 text-dim">{wordsFor(task)}</p>
        <TaskLink task={task}>Output</TaskLink>
        <StopButton task={task} />
      </div>
      <ProgressBar value={progressOf(task)} label="Progress" />
    </div>
  );
}

function wordsFor(task: Job): string {
  if (task.status === "queued") return (task.queuePosition ?? 1) > 1 ? `In the queue, at place ${task.queuePosition}.` : "In the queue: it starts as soon as a device is free.";
  if (task.status === "provisioning") return "Starting.";
  if (task.status === "cancelling") return "Stopping.";
  return PHASES[task.summary.phase ?? ""] ?? "At work.";
}

function TaskLink({ task, children }: { task: Job; children: string }) {
  return (
    <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId: task.projectId, jobId: task.id }} className="text-sm text-violet-soft underline-offset-3 hover:underline">
      {children}
    </Link>
  );
}

export function StopButton({ task }: { task: Job }) {
  const [pending, setPending] = useState(false);
  if (isResting(task.status) || task.status === "cancelling") return null;
  async function stop() {
    setPending(true);
    try {
      await cancelJob(task.id);
      await forgetTasks();
    } catch (error) {
      toastFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }
  return (
    <Button size="small" pending={pending} onClick={() => void stop()}>
      Stop
    </Button>
  );
}
