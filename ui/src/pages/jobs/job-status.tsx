import type { JobStatus } from "@/api/types";
import { Badge } from "@/components/badge";
import { cn } from "@/components/class-names";

type Tone = "neutral" | "violet" | "teal" | "good" | "bad";

const BADGES: Record<JobStatus, { text: string; tone: Tone; moving?: boolean }> = {
  queued: { text: "Queued", tone: "neutral" },
  provisioning: { text: "Starting", tone: "teal", moving: true },
  running: { text: "Running", tone: "good", moving: true },
  pausing: { text: "Pausing", tone: "teal", moving: true },
  paused: { text: "Paused", tone: "violet" },
  cancelling: { text: "Cancelling", tone: "teal", moving: true },
  cancelled: { text: "Cancelled", tone: "neutral" },
  completed: { text: "Completed", tone: "violet" },
  failed: { text: "Failed", tone: "bad" },
};

export const statusText = (status: JobStatus) => BADGES[status].text;

/** The states in the order in which a job meets them. */
export const STATUSES = Object.keys(BADGES) as JobStatus[];

export function JobStatusBadge({ status, className }: { status: JobStatus; className?: string }) {
  const { text, tone, moving } = BADGES[status];
  return (
    <Badge tone={tone} className={className}>
      <span aria-hidden className={cn("size-1.75 rounded-full bg-current", moving && "shadow-[0_0_0_3px_color-mix(in_srgb,currentColor_25%,transparent)]")} />
      {text}
    </Badge>
  );
}
