import { useQuery } from "@tanstack/react-query";
import type { LucideIcon } from "lucide-react";
import { type ReactNode, useCallback, useState } from "react";
import { tasksQuery } from "@/api/tasks";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { Select } from "@/components/select";
import { SkeletonRows } from "@/components/skeleton";
import { statusText } from "@/pages/jobs/job-status";
import { exactTime } from "@/text/relative-time";
import { TaskProgress } from "./task-progress";

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
  // The page is loaded after its address: by then the browser has given up looking for the place in it.
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
