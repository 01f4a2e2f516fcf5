import type { Job, JobStatus } from "@/api/types";

export type JobAction = "save" | "settings" | "pause" | "resume" | "cancel" | "extend" | "delete" | "download" | "share" | "talk";

/** What can be asked of a job in each state. The server has the same table, and the last word. */
const ACTIONS: Record<JobStatus, JobAction[]> = {
  queued: ["pause", "cancel", "share"],
  provisioning: ["pause", "cancel", "share"],
  running: ["save", "settings", "pause", "cancel", "share"],
  pausing: ["cancel", "share"],
  paused: ["delete", "cancel", "share", "settings", "resume"],
  cancelling: ["share"],
  cancelled: ["delete", "share", "resume"],
  completed: ["delete", "share", "extend", "download", "talk"],
  failed: ["delete", "share", "resume"],
};

export function actionsFor(job: Pick<Job, "status" | "hasModel">): JobAction[] {
  return ACTIONS[job.status].filter((action) => job.hasModel || (action !== "download" && action !== "talk"));
}
