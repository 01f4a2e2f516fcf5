import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { deleteJob, isResting, jobQuery } from "@/api/jobs";
import { forgetTasks } from "@/api/tasks";
import type { Job, JobKind } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { JobStatusBadge } from "@/pages/jobs/job-table";
import { PageHeader } from "@/shell/page";
import { ConfigCard } from "./config-card";
import { EvaluationResult } from "./evaluation-card";
import { ExportResult } from "./export-card";
import { RunWarnings } from "./findings";
import { LearningRateFinder } from "./learning-rate-finder";
import { OutputCard } from "./output-card";
import { StopButton, TaskProgress } from "./task-card";

const KINDS: Record<Exclude<JobKind, "train" | "script" | "run">, string> = {
  serve: "Playground",
  evaluate: "Evaluation",
  export: "Export",
  find_learning_rate: "Learning-rate finder",
};

/** A task on its own: its answer, and what it printed, which is what one wants to read when it failed. */
export function TaskPage({ task }: { task: Job }) {
  const parent = useQuery({ ...jobQuery(task.parent_id ?? ""), enabled: task.parent_id !== null });
  if (task.kind === "train" || task.kind === "script" || task.kind === "run") return null;
  const kind = KINDS[task.kind];
  return (
    <>
      <PageHeader
        crumbs={<Crumbs task={task} parentName={parent.data?.name ?? null} />}
        title={
          <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
            <span className="min-w-0 wrap-anywhere">{task.name}</span>
            <JobStatusBadge status={task.status} className="tracking-normal" />
          </span>
        }
        note={kind}
      >
        <StopButton task={task} />
        {isResting(task.status) && <DeleteButton task={task} kind={kind} />}
        {task.kind === "serve" && (
          <Button asChild variant="primary">
            <Link to="/playground" search={task.parent_id ? { job: task.parent_id, checkpoint: task.checkpoint_id ?? undefined } : { model: task.model_id ?? undefined }}>
              Open the playground
            </Link>
          </Button>
        )}
      </PageHeader>
      <RunWarnings job={task} className="mb-3.5" />
      <div className="grid gap-3.5">
        {task.kind !== "serve" && (
          <Card>
            <CardHeader title="Result" />
            <Answer task={task} />
          </Card>
        )}
        <OutputCard job={task} />
        {task.task && <ConfigCard config={task.task.kind === "find_learning_rate" ? task.task.train : task.task} />}
      </div>
    </>
  );
}

function Answer({ task }: { task: Job }) {
  if (task.kind === "find_learning_rate") return <LearningRateFinder jobId={task.id} />;
  if (task.result === null) return <TaskProgress task={task} />;
  return task.kind === "evaluate" ? <EvaluationResult task={task} /> : <ExportResult task={task} />;
}

function DeleteButton({ task, kind }: { task: Job; kind: string }) {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  return (
    <>
      <Button onClick={() => setOpen(true)}>Delete</Button>
      <ConfirmDialog
        open={open}
        onOpenChange={setOpen}
        title={`Delete this ${kind.toLowerCase()}?`}
        action="Delete"
        onConfirm={async () => {
          await deleteJob(task.id);
          void forgetTasks();
          toast(`${kind} deleted.`);
          await (task.parent_id
            ? navigate({ to: "/projects/$projectId/jobs/$jobId", params: { projectId: task.project_id, jobId: task.parent_id } })
            : navigate({ to: "/projects/$projectId", params: { projectId: task.project_id } }));
        }}
      >
        The result, the output and the files are permanently removed from this server.
      </ConfirmDialog>
    </>
  );
}

function Crumbs({ task, parentName }: { task: Job; parentName: string | null }) {
  const linkClass = "underline-offset-3 hover:text-text hover:underline";
  return (
    <>
      <Link to="/projects/$projectId" params={{ projectId: task.project_id }} className={linkClass}>
        {task.project_name}
      </Link>
      {task.parent_id && (
        <>
          {" "}
          /{" "}
          <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId: task.project_id, jobId: task.parent_id }} className={`${linkClass} text-text`}>
            {parentName ?? "Run"}
          </Link>
        </>
      )}
    </>
  );
}
