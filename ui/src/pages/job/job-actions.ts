import type { Job, JobStatus } from "@/api/types";

export type JobAction = "save" | "settings" | "pause" | "resume" | "cancel" | "extend" | "delete" | "download" | "share" | "talk" | "move" | "again";

/** What can be asked of a job in each state. The server has the same table, and the last word. */
const ACTIONS: Record<JobStatus, JobAction[]> = {
  queued: ["pause", "cancel", "share", "move"],
  provisioning: ["pause", "cancel", "share"],
  running: ["save", "settings", "pause", "cancel", "share"],
  pausing: ["cancel", "share"],
  paused: ["delete", "cancel", "share", "settings", "move", "resume"],
  cancelling: ["share"],
  cancelled: ["delete", "share", "again", "move", "resume"],
  completed: ["delete", "share", "again", "extend", "download", "talk"],
  failed: ["delete", "share", "move", "resume", "again"],
};

/** A script of somebody's own hears no commands but to stop, and what it made is no model to talk to. */
const NOT_OF_SCRIPTS: readonly JobAction[] = ["save", "settings", "extend", "talk", "again"];

export function actionsFor(job: Pick<Job, "status" | "hasModel" | "kind" | "config">): JobAction[] {
  const possible = ACTIONS[job.status].filter((action) => job.hasModel || (action !== "download" && action !== "talk"));
  if (job.kind !== "script") return possible;
  // One that does not go on from a checkpoint would lose everything by a pause; the server refuses it.
  return possible.filter((action) => !NOT_OF_SCRIPTS.includes(action) && (action !== "pause" || job.config.resumes !== false));
}
