/** The actions of a job page: one primary button by the job's state, the download of a model, everything else in a menu. */
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { Ban, CopyPlus, Download, type LucideIcon, MessagesSquare, Pause, Play, Share2 } from "lucide-react";
import { type ComponentProps, type ReactNode, useState } from "react";
import { archiveAddress, cancelJob, checkpointsQuery, deleteJob, pauseJob, resumeJob, saveJob } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import type { Job, JobStatus } from "@/api/types";
import { Button } from "@/components/button";
import { ConfirmDialog } from "@/components/dialog";
import { Menu, type MenuItem } from "@/components/menu";
import { toast, toastFailure } from "@/components/toasts";
import { ExtendDialog, SettingsDialog, ShareDialog } from "./job-dialogs";
import { MoveDialog } from "./move-dialog";
import { cancelText, queuedText, stepsOf } from "./resume-words";
import { useTuneFurther } from "./tune-further";

type JobAction = "save" | "settings" | "pause" | "resume" | "cancel" | "extend" | "delete" | "download" | "share" | "playground" | "move" | "again" | "base" | "export";

/** The actions that each state of a job allows. The server has the same table and decides. */
const ACTIONS: Record<JobStatus, JobAction[]> = {
  queued: ["pause", "cancel", "share", "move"],
  provisioning: ["pause", "cancel", "share"],
  running: ["save", "settings", "pause", "cancel", "share"],
  pausing: ["cancel", "share"],
  paused: ["delete", "cancel", "share", "settings", "move", "resume"],
  cancelling: ["share"],
  cancelled: ["delete", "share", "again", "move", "resume"],
  completed: ["delete", "share", "again", "extend", "download", "export", "playground", "base"],
  failed: ["delete", "share", "move", "resume", "again"],
};

/** What a person most probably wants next. The first one that is possible becomes the button. */
const PRIMARY: Record<JobStatus, JobAction[]> = {
  queued: ["cancel"],
  provisioning: ["cancel"],
  running: ["pause", "cancel"],
  pausing: [],
  paused: ["resume"],
  cancelling: [],
  cancelled: ["resume"],
  completed: ["playground", "download", "share"],
  failed: ["resume"],
};

export function primaryOf(job: Pick<Job, "status" | "has_model" | "kind" | "task" | "failed_on_data" | "error_code">): JobAction | null {
  const possible = actionsFor(job);
  // Resuming a job that failed on its data, or by a mistake in its script, fails again.
  const wanted = job.failed_on_data || job.error_code === "script_failed" ? (["again", ...PRIMARY.failed] as const) : PRIMARY[job.status];
  return wanted.find((action) => possible.includes(action)) ?? null;
}

/** A person's own script takes no commands but to stop, and its result is not a model for the playground. */
const NOT_OF_SCRIPTS: readonly JobAction[] = ["export", "save", "settings", "extend", "playground", "base"];

/** A run that was sent from another machine is controlled there. */
const OF_SENT_RUNS: readonly JobAction[] = ["cancel", "delete", "share"];

/** What needs a finished model. */
const OF_MODELS: readonly JobAction[] = ["export", "download", "playground", "base"];

export function actionsFor(job: Pick<Job, "status" | "has_model" | "kind" | "task"> & { config?: Job["config"] }): JobAction[] {
  const possible = ACTIONS[job.status].filter((action) => (job.has_model || !OF_MODELS.includes(action)) && (action !== "base" || job.config?.method === "full"));
  if (job.kind === "run") return possible.filter((action) => OF_SENT_RUNS.includes(action));
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
  again: "Duplicate and edit",
  base: "Fine-tune this model",
  export: "Export",
};

type Direct = "save" | "pause" | "resume";

/** `done`: what happens now, said of the job as the server answered it. */
const DIRECT: Record<Direct, { run: (id: string) => Promise<Job>; done: (job: Job) => string | Promise<string> }> = {
  save: { run: saveJob, done: () => "The job saves a checkpoint at the next step." },
  // A job that has not started has nothing to save, and is paused at once.
  pause: { run: pauseJob, done: ({ status }) => (status === "paused" ? "The job is paused and left the queue." : "The job saves a checkpoint and then pauses.") },
  resume: { run: resumeJob, done: queuedText },
};

const isDirect = (action: JobAction): action is Direct => action in DIRECT;

export function ActionButtons({ job }: { job: Job }) {
  const [open, setOpen] = useState<JobAction | null>(null);
  const [pending, setPending] = useState<JobAction | null>(null);
  const close = () => setOpen(null);

  async function run(action: Direct) {
    setPending(action);
    try {
      const { run: send, done } = DIRECT[action];
      toast(await done(await send(job.id)));
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

  const primary = primaryOf(job);
  const tuneFurther = useTuneFurther(job.id);
  const choose = (action: JobAction) => (action === "base" ? tuneFurther.run() : isDirect(action) ? void run(action) : setOpen(action));
  const others = actionsFor(job).filter((action) => action !== primary);
  const items = MENU_ORDER.filter((action) => others.includes(action)).map(
    (action): MenuItem => ({
      text: TEXTS[action],
      danger: action === "delete" || action === "cancel",
      ...(isLink(action) ? { link: (text) => <ActionLink action={action} job={job}>{text}</ActionLink> } : { onChoose: () => choose(action) }),
    }),
  );

  return (
    <div className="flex gap-2 max-sm:w-full">
      {primary && <PrimaryButton action={primary} job={job} pending={pending === primary} onChoose={() => choose(primary)} />}
      {others.includes("download") && (
        <Button asChild>
          <ActionLink action="download" job={job}>
            <Download aria-hidden />
            <span className="max-sm:sr-only">{TEXTS.download}</span>
          </ActionLink>
        </Button>
      )}
      <Menu size="page" label="More actions" items={items} />
      {open && dialogs[open]}
    </div>
  );
}

const MENU_ORDER: readonly JobAction[] = ["resume", "pause", "save", "settings", "playground", "export", "base", "extend", "again", "move", "share", "cancel", "delete"];

const ICONS: Partial<Record<JobAction, LucideIcon>> = { pause: Pause, resume: Play, cancel: Ban, playground: MessagesSquare, download: Download, again: CopyPlus, share: Share2 };

type LinkAction = "download" | "playground" | "again" | "export";
const isLink = (action: JobAction): action is LinkAction => action === "download" || action === "playground" || action === "again" || action === "export";

function PrimaryButton({ action, job, pending, onChoose }: { action: JobAction; job: Job; pending: boolean; onChoose: () => void }) {
  const Icon = ICONS[action];
  const content = (
    <>
      {Icon && !pending && <Icon aria-hidden />}
      {TEXTS[action]}
    </>
  );
  return isLink(action) ? (
    <Button asChild variant="primary" className="max-sm:grow">
      <ActionLink action={action} job={job}>
        {content}
      </ActionLink>
    </Button>
  ) : (
    <Button variant="primary" pending={pending} onClick={onChoose} className="max-sm:grow">
      {content}
    </Button>
  );
}

function ActionLink({ action, job, children, ...rest }: { action: LinkAction; job: Job } & Omit<ComponentProps<"a">, "href">) {
  if (action === "download") {
    return (
      <a href={archiveAddress(job.id)} download {...rest}>
        {children}
      </a>
    );
  }
  if (action === "playground") {
    return (
      <Link to="/playground" search={{ job: job.id }} {...rest}>
        {children}
      </Link>
    );
  }
  if (action === "export") {
    return (
      <Link to="." search={{ tab: "checkpoints" }} {...rest}>
        {children}
      </Link>
    );
  }
  return (
    <AgainLink job={job} {...rest}>
      {children}
    </AgainLink>
  );
}

/** To the form that the job came from, filled in as it was then. */
function AgainLink({ job, ...rest }: { job: Job } & Omit<ComponentProps<"a">, "href">) {
  const search = { like: job.id };
  if (job.kind === "script") return <Link to="/script" search={search} {...rest} />;
  if (job.model_id !== null) return <Link to="/finetune" search={search} {...rest} />;
  return <Link to="/projects/$projectId/jobs/new" params={{ projectId: job.project_id }} search={search} {...rest} />;
}

function CancelDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const saved = useQuery(checkpointsQuery(job.id));
  return (
    <ConfirmDialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={`Cancel “${job.name}”?`}
      action="Cancel job"
      dismiss="Keep job"
      onConfirm={async () => {
        await cancelJob(job.id);
        toast("The job is being cancelled.");
      }}
    >
      {cancelText(job, saved.data ? stepsOf(saved.data.items) : null)}
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
