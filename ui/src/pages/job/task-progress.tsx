import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { progressOf, readSummary } from "@/api/job-summary";
import { cancelJob, isResting } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import type { Job } from "@/api/types";
import { forgetTasks } from "@/api/tasks";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { toastFailure } from "@/components/toasts";
import { ProgressBar } from "@/pages/jobs/progress-bar";

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
  const { phase } = readSummary(task);
  return PHASES[phase ?? ""] ?? "At work.";
}

export function TaskLink({ task, children }: { task: Job; children: string }) {
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
