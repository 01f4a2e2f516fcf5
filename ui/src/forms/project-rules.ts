import type { Project, ProjectBody } from "@/api/types";
import { z } from "./zod";

const textOrNull = (longest: number, message: string) =>
  z
    .string()
    .trim()
    .max(longest, message)
    .transform((text) => (text === "" ? null : text));

const billions = z
  .string()
  .trim()
  .min(1, "Enter the size in billions of parameters.")
  .transform((text, context) => {
    // Number() also reads "", "0x10" and "1e3"; only plain decimals are meant here.
    if (/^\d+(\.\d+)?$/.test(text)) return Number(text);
    context.addIssue({ code: "custom", message: "Enter a plain number, such as 7 or 0.5." });
    return z.NEVER;
  })
  .pipe(
    z
      .number()
      .positive("The size must be more than 0.")
      .max(10_000, "The size can be at most 10,000 billion parameters."),
  );

export const projectRules = z.object({
  name: z.string().trim().min(1, "Give the project a name.").max(120, "A name can have at most 120 characters."),
  description: textOrNull(2000, "A description can have at most 2,000 characters."),
  modelArchitecture: z.enum(["transformer", "custom"]),
  modelSize: billions,
  // Which paths are allowed is the server's to know; it answers with a message for this field.
  trainingDataPath: textOrNull(1024, "A path can have at most 1,024 characters."),
});

export type ProjectFormValues = z.input<typeof projectRules>;

export const emptyProject: ProjectFormValues = {
  name: "",
  description: "",
  modelArchitecture: "transformer",
  modelSize: "",
  trainingDataPath: "",
};

export const formValuesOf = (project: Project): ProjectFormValues => ({
  name: project.name,
  description: project.description ?? "",
  modelArchitecture: project.modelArchitecture,
  modelSize: String(project.modelSize),
  trainingDataPath: project.trainingDataPath ?? "",
});

/** The rules produce exactly what the server takes; this line fails to compile when they drift apart. */
export const projectBody = (values: z.output<typeof projectRules>): ProjectBody => values;
