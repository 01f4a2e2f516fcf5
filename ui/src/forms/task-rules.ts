/** What is asked of a trained model: rules for the forms that start an evaluation or an export. */
import type { NewEvaluation, NewExport } from "@/api/task-types";
import { wholeNumber } from "./number-rules";
import { z } from "./zod";

/** One prompt on each line. */
export const linesOf = (text: string) => text.split("\n").map((line) => line.trim()).filter(Boolean);

const TASK_NAME = /^[\w.,:/-]+$/;

export const evaluationRules = z
  .object({
    prompts: z.string(),
    maxNewTokens: wholeNumber({ least: 1, most: 4096 }),
    maxBatches: wholeNumber({ least: 1, most: 1e9 }),
    lmEvalTasks: z.string(),
  })
  .superRefine(({ prompts, lmEvalTasks }, context) => {
    if (linesOf(prompts).length > 1000) context.addIssue({ code: "custom", path: ["prompts"], message: "At most 1,000 prompts." });
    if (namesOf(lmEvalTasks).some((name) => !TASK_NAME.test(name))) context.addIssue({ code: "custom", path: ["lmEvalTasks"], message: "Names of tasks, separated by spaces, such as hellaswag arc_easy." });
  });

const namesOf = (text: string) => text.split(/[\s,]+/).filter(Boolean);

type EvaluationValues = z.output<typeof evaluationRules>;

export const evaluationBody = (values: EvaluationValues, checkpointId: string | null): NewEvaluation => ({
  checkpointId,
  prompts: linesOf(values.prompts),
  maxNewTokens: values.maxNewTokens ?? 128,
  maxBatches: values.maxBatches ?? 20,
  lmEvalTasks: namesOf(values.lmEvalTasks),
});

const REPOSITORY = /^[\w.-]+\/[\w.-]+$/;

export const exportRules = z
  .object({
    form: z.enum(["adapter", "merged", "gguf"]),
    dtype: z.enum(["bf16", "fp16", "fp32"]),
    prompts: z.string(),
    push: z.boolean(),
    repository: z.string().trim(),
    isPrivate: z.boolean(),
  })
  .superRefine(({ push, repository }, context) => {
    if (push && !REPOSITORY.test(repository)) context.addIssue({ code: "custom", path: ["repository"], message: "Write it as owner/name." });
  });

type ExportValues = z.output<typeof exportRules>;

export const exportBody = (values: ExportValues, checkpointId: string | null): NewExport => ({
  checkpointId,
  form: values.form,
  dtype: values.dtype,
  prompts: linesOf(values.prompts),
  hub: values.push ? { repository: values.repository, private: values.isPrivate } : null,
});
