/** The buttons of a job page, and which of them a job's state allows. */
import { Link, useNavigate } from "@tanstack/react-router";
import { Download, MessagesSquare } from "lucide-react";
import { type ComponentProps, type ReactNode, useState } from "react";
import { archiveAddress, cancelJob, deleteJob, pauseJob, resumeJob, saveJob } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import type { Job, JobStatus } from "@/api/types";
import { Button } from "@/components/button";
import { ConfirmDialog } from "@/components/dialog";
import { toast, toastFailure } from "@/components/toasts";
import { ExtendDialog, SettingsDialog, ShareDialog } from "./job-dialogs";
import { MoveDialog } from "./move-dialog";

type JobAction = "save" | "settings" | "pause" | "resume" | "cancel" | "extend" | "delete" | "download" | "share" | "playground" | "move" | "again";

/** The actions that each state of a job allows. The server has the same table and decides. */
const ACTIONS: Record<JobStatus, JobAction[]> = {
  queued: ["pause", "cancel", "share", "move"],
  provisioning: ["pause", "cancel", "share"],
  running: ["save", "settings", "pause", "cancel", "share"],
  pausing: ["cancel", "share"],
  paused: ["delete", "cancel", "share", "settings", "move", "resume"],
  cancelling: ["share"],
  cancelled: ["delete", "share", "again", "move", "resume"],
  completed: ["delete", "share", "again", "extend", "download", "playground"],
  failed: ["delete", "share", "move", "resume", "again"],
};

/** A person's own script takes no commands but to stop, and its result is not a model for the playground. */
const NOT_OF_SCRIPTS: readonly JobAction[] = ["save", "settings", "extend", "playground", "again"];

export function actionsFor(job: Pick<Job, "status" | "has_model" | "kind" | "task">): JobAction[] {
  const possible = ACTIONS[job.status].filter((action) => job.has_model || (action !== "download" && action !== "playground"));
  if (job.kind !== "script") return possible;
  // One that does not go on from a checkpoint would lose everything by a pause; the server refuses it.
  return possible.filter((action) => !NOT_OF_SCRIPTS.includes(action) && (action !== "pause" || job.task?.kind !== "script" || job.task.resumes));
}

const TEXTS: Record<JobAction, string> = {
  save: "Save checkpoint",
  settings: "Settings",
  pause: "Pause",
  resume: "Resume",
  cancel: "Cancel",
  extend: "Train further",
  delete: "Delete",
  download: "Download model",
  share: "Share",
  playground: "Open in playground",
  move: "Move to another machine",
  again: "Copy to new job",
};

type Direct = "save" | "pause" | "resume";

const DIRECT: Record<Direct, { run: (id: string) => Promise<Job>; done: string }> = {
  save: { run: saveJob, done: "The job saves a checkpoint at the next step." },
  pause: { run: pauseJob, done: "The job saves a checkpoint and then pauses." },
  resume: { run: resumeJob, done: "The job is queued. It resumes from its last checkpoint." },
};

const isDirect = (action: JobAction): action is Direct => action in DIRECT;

export function ActionButtons({ job }: { job: Job }) {
  const [open, setOpen] = useState<JobAction | null>(null);
  const [pending, setPending] = useState<JobAction | null>(null);
  const close = () => setOpen(null);

  async function run(action: Direct) {
    setPending(action);
    try {
      await DIRECT[action].run(job.id);
      toast(DIRECT[action].done);
    } catch (error) {
      toastFailure(sentenceOf(error));
    } finally {
      setPending(null);
    }
  }

  const dialogs: Partial<Record<JobAction, ReactNode>> = {
    settings: <SettingsDialog job={job} onClose={close} />,
    extend: <ExtendDialog job={job} onClose={close} />,
    move: <MoveDialog job={job} onClose={close} />,
    share: <ShareDialog job={job} onClose={close} />,
    cancel: <CancelDialog job={job} onClose={close} />,
    delete: <DeleteDialog job={job} onClose={close} />,
  };

  return (
    <>
      {actionsFor(job).map((action) =>
        action === "download" ? (
          <Button key={action} asChild>
            <a href={archiveAddress(job.id)} download>
              <Download aria-hidden />
              {TEXTS[action]}
            </a>
          </Button>
        ) : action === "playground" ? (
          <Button key={action} asChild variant="primary">
            <Link to="/playground" search={{ job: job.id }}>
              <MessagesSquare aria-hidden />
              {TEXTS[action]}
            </Link>
          </Button>
        ) : action === "again" ? (
          <Button key={action} asChild>
            <AgainLink job={job}>{TEXTS[action]}</AgainLink>
          </Button>
        ) : (
          <Button
            key={action}
            variant={action === "resume" ? "primary" : "outline"}
            pending={pending === action}
            onClick={() => (isDirect(action) ? void run(action) : setOpen(action))}
          >
            {TEXTS[action]}
          </Button>
        ),
      )}
      {open && dialogs[open]}
    </>
  );
}

/** To the form that the job came from, filled in as it was then. */
function AgainLink({ job, ...rest }: { job: Job } & Omit<ComponentProps<"a">, "href">) {
  const search = { like: job.id };
  if (job.model_id !== null) return <Link to="/finetune" search={search} {...rest} />;
  return <Link to="/projects/$projectId/jobs/new" params={{ projectId: job.project_id }} search={search} {...rest} />;
}

function CancelDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  return (
    <ConfirmDialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={`Cancel “${job.name}”?`}
      action="Cancel job"
      onConfirm={async () => {
        await cancelJob(job.id);
        toast("The job is being cancelled.");
      }}
    >
      Training stops and the device becomes free for the next job. The checkpoints are kept. You can resume the job from the last checkpoint.
    </ConfirmDialog>
  );
}

function DeleteDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const navigate = useNavigate();
  return (
    <ConfirmDialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={`Delete “${job.name}”?`}
      action="Delete job"
      onConfirm={async () => {
        await deleteJob(job.id);
        toast(`Job “${job.name}” deleted.`);
        await navigate({ to: "/projects/$projectId", params: { projectId: job.project_id } });
      }}
    >
      The charts, output, checkpoints and model of this job are permanently removed from this server.
    </ConfirmDialog>
  );
}
