/** Short names for the shapes of tasks, playgrounds and comparisons. */
import type { components } from "./schema";
import type { Job } from "./types";

type Schemas = components["schemas"];

export type JobKind = Job["kind"];
export type NewEvaluation = Schemas["NewEvaluation"];
export type NewExport = Schemas["NewExport"];
export type CheckpointOfJob = Schemas["CheckpointOfJob"];
export type Difference = Schemas["Difference"];
export type Outcome = Schemas["Outcome"];
/** A model in memory, or on its way there. */
export type PlaygroundSession = Schemas["PlaygroundOut"];
