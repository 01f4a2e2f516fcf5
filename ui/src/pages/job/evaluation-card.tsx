/** Evaluations of a job: the form, the results, and the answers before and after training with their word differences. */
import { Gauge } from "lucide-react";
import { useState } from "react";
import { NewEvaluation as EvaluationSchema } from "@/api/request-fields";
import { scoresOf, startEvaluation } from "@/api/tasks";
import type { EvaluationResult as Evaluation, Job, NewEvaluation } from "@/api/types";
import { Button } from "@/components/button";
import { PageSteps } from "@/components/data-table";
import { Dialog } from "@/components/dialog";
import { Notice } from "@/components/notice";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextareaField, TextField } from "@/forms/field";
import { numberRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { countText, metricText } from "@/text/numbers";
import type { Subject } from "./checkpoints-card";
import { TaskCard } from "./task-card";
import { methodOf } from "./tuning-card";

/** One prompt on each line. */
export const linesOf = (text: string) => text.split("\n").map((line) => line.trim()).filter(Boolean);

const TASK_NAME = new RegExp(EvaluationSchema.lm_eval_tasks.items.pattern);

const evaluationRules = z
  .object({
    dataPath: z.string(),
    prompts: z.string(),
    maxNewTokens: numberRule(EvaluationSchema.max_new_tokens),
    maxBatches: numberRule(EvaluationSchema.max_batches),
    lmEvalTasks: z.string(),
  })
  .superRefine(({ prompts, lmEvalTasks }, context) => {
    const most = EvaluationSchema.prompts.maxItems;
    if (linesOf(prompts).length > most) context.addIssue({ code: "custom", path: ["prompts"], message: `Enter at most ${countText(most)} prompts.` });
    if (namesOf(lmEvalTasks).some((name) => !TASK_NAME.test(name))) context.addIssue({ code: "custom", path: ["lmEvalTasks"], message: "Enter task names separated by spaces, such as hellaswag arc_easy." });
  });

const namesOf = (text: string) => text.split(/[\s,]+/).filter(Boolean);

type EvaluationValues = z.output<typeof evaluationRules>;

const evaluationBody = ({ maxNewTokens, maxBatches, ...values }: EvaluationValues, checkpointId: string | null): NewEvaluation => ({
  checkpoint_id: checkpointId,
  data_path: values.dataPath.trim() || null,
  prompts: linesOf(values.prompts),
  ...(maxNewTokens !== null && { max_new_tokens: maxNewTokens }),
  ...(maxBatches !== null && { max_batches: maxBatches }),
  lm_eval_tasks: namesOf(values.lmEvalTasks),
});

/** What the training changed, measured. */
export function EvaluationCard({ job }: { job: Job }) {
  return (
    <TaskCard
      job={job}
      kind="evaluate"
      title="Evaluation"
      icon={Gauge}
      action="Evaluate"
      possible={job.status === "completed" && job.has_model}
      invitation={{ title: "No evaluation yet.", text: "Measure perplexity on the eval split before and after training. Also compare the model’s answers to your prompts before and after training." }}
      dialog={(close) => <EvaluateDialog subject={{ jobId: job.id, projectId: job.project_id, method: methodOf(job), checkpoint: null }} onClose={close} />}
    >
      {(task) => <EvaluationResult task={task} />}
    </TaskCard>
  );
}

type EvaluateDialogProps = { subject: Subject; onClose: () => void; onStarted?: () => void };

export function EvaluateDialog({ subject, onClose, onStarted = onClose }: EvaluateDialogProps) {
  const { checkpoint } = subject;
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={checkpoint ? `Evaluate step ${countText(checkpoint.step)}` : "Evaluate the model"}
      description="Compares the model before and after training: its perplexity on the eval split and its answers to your prompts."
    >
      <EvaluateForm subject={subject} onClose={onClose} onStarted={onStarted} />
    </Dialog>
  );
}

function EvaluateForm({ subject, onClose, onStarted }: Required<EvaluateDialogProps>) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: evaluationRules,
    defaultValues: { dataPath: "", prompts: "", maxNewTokens: "", maxBatches: "", lmEvalTasks: "" },
    submit: async (values) => {
      await startEvaluation(subject.jobId, evaluationBody(values, subject.checkpoint?.id ?? null));
      toast("The evaluation is queued.");
      onStarted();
    },
  });
  return (
    <ApiForm label="Evaluate" failure={failure} onSubmit={onSubmit}>
      <TextareaField label="Prompts" optional rows={4} help="Enter one prompt per line." {...field("prompts")} />
      <TextField label="Data" optional autoComplete="off" placeholder="The eval split of the job" help="An https://, hf://, s3:// or gs:// address. Private data needs secrets: Settings, Tokens." {...field("dataPath")} />
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Max new tokens" inputMode="numeric" autoComplete="off" placeholder={countText(EvaluationSchema.max_new_tokens.default)} {...field("maxNewTokens")} />
        <TextField label="Max eval batches" inputMode="numeric" autoComplete="off" placeholder={countText(EvaluationSchema.max_batches.default)} {...field("maxBatches")} />
      </div>
      <TextField label="lm-eval tasks" optional autoComplete="off" placeholder="hellaswag arc_easy" help="Benchmarks from the lm-eval package, if it is installed on the server. They can take hours." {...field("lmEvalTasks")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Evaluate
        </Button>
      </div>
    </ApiForm>
  );
}

/** What an evaluation found: perplexity before and after as bars, and answers side by side. */
export function EvaluationResult({ task }: { task: Job }) {
  if (task.result?.kind !== "evaluate") return null;
  const evaluation = task.result;
  const scores = scoresOf(evaluation);
  return (
    <div className="grid gap-5">
      {evaluation.perplexity.tuned && <Perplexity measured={evaluation.perplexity} />}
      {scores.length > 0 && <Scores scores={scores} />}
      {evaluation.prompts.length > 0 && (
        <section aria-label="Answers before and after">
          <h3 className="mb-2 text-xs text-dim">
            Answers before and after training. <mark className="rounded-sm bg-success/20 px-1 text-success-soft">New words</mark> are highlighted.
          </h3>
          <AnswerPages prompts={evaluation.prompts} />
        </section>
      )}
      {evaluation.notes.map((note) => (
        <Notice key={note} tone="attention">
          {note}
        </Notice>
      ))}
    </div>
  );
}

function Perplexity({ measured: { base, tuned } }: { measured: Evaluation["perplexity"] }) {
  const [before, after] = [base?.perplexity ?? null, tuned?.perplexity ?? null];
  // Perplexities are ratios: on a plain scale the better one could not be seen.
  const most = Math.log(Math.max(before ?? 1, after ?? 1, 1.0001));
  return (
    <section aria-label="Perplexity before and after">
      <div className="mb-2 flex flex-wrap items-baseline justify-between gap-x-4">
        <h3 className="text-xs text-dim">Perplexity on the eval split (lower is better)</h3>
        {before !== null && after !== null && <p className="text-sm font-[560]">{changeText(before, after)}</p>}
      </div>
      <div className="grid gap-2">
        {base && <Bar name="Base" measured={base} most={most} colour="bg-primary-bright" />}
        {tuned && <Bar name="Tuned" measured={tuned} most={most} colour="bg-violet-bright" />}
      </div>
    </section>
  );
}

const changeText = (before: number, after: number) => {
  // "100 % lower" would be wrong, and "99.7 % lower" says little.
  if (before / after >= 2) return `${countText(before / after)} times lower after training`;
  const percent = Math.round((after / before - 1) * 100);
  return percent === 0 ? "about the same" : percent < 0 ? `${-percent} % lower after training` : `${percent} % higher after training`;
};

function Bar({ name, measured, most, colour }: { name: string; measured: NonNullable<Evaluation["perplexity"]["base"]>; most: number; colour: string }) {
  const { perplexity, loss, tokens } = measured;
  const width = perplexity === null ? 0 : Math.max(2, (Math.log(Math.max(perplexity, 1)) / most) * 100);
  return (
    <div className="grid grid-cols-[3.5rem_minmax(0,1fr)_auto] items-center gap-3 text-sm">
      <span className="text-dim">{name}</span>
      <div aria-hidden className="h-5 overflow-hidden rounded-md bg-white/6">
        <div className={`h-full rounded-md ${colour}`} style={{ width: `${width}%` }} />
      </div>
      <span className="min-w-30 text-right tabular-nums" title={tokens === null ? undefined : `measured on ${countText(tokens)} tokens`}>
        <b className="font-[600]">{perplexity === null ? "–" : metricText(perplexity)}</b>
        {loss !== null && <span className="ml-2 text-xs text-dim">loss {metricText(loss)}</span>}
      </span>
    </div>
  );
}

function Scores({ scores }: { scores: ReturnType<typeof scoresOf> }) {
  return (
    <table className="w-full text-sm">
      <caption className="mb-1.5 text-left text-xs text-dim">lm-eval benchmarks</caption>
      <thead>
        <tr className="text-xs text-faint">
          <th scope="col" className="pb-1 text-left font-[450]">
            Task
          </th>
          <th scope="col" className="pb-1 text-right font-[450]">
            Base
          </th>
          <th scope="col" className="pb-1 text-right font-[450]">
            Tuned
          </th>
        </tr>
      </thead>
      <tbody>
        {scores.map(({ name, base, tuned }) => (
          <tr key={name} className="border-t border-line">
            <th scope="row" className="py-1 text-left font-[450] wrap-anywhere text-dim">
              {name}
            </th>
            <td className="py-1 pl-3 text-right">{base === null ? "–" : metricText(base)}</td>
            <td className="py-1 pl-3 text-right font-[560]">{tuned === null ? "–" : metricText(tuned)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const ANSWERS_PER_PAGE = 4;

/** Answers to prompts, a few at a time. */
export function AnswerPages({ prompts, perPage = ANSWERS_PER_PAGE }: { prompts: Evaluation["prompts"]; perPage?: number }) {
  const [page, setPage] = useState(1);
  return (
    <>
      <ol className="grid gap-3">
        {prompts.slice((page - 1) * perPage, page * perPage).map((answered, index) => (
          // Two prompts may read the same.
          // oxlint-disable-next-line react/no-array-index-key
          <AnswerPair key={index} answered={answered} />
        ))}
      </ol>
      <PageSteps page={page} pageSize={perPage} total={prompts.length} onTurn={setPage} />
    </>
  );
}

/** Runs of empty lines say nothing, and a model that has learned little writes thousands of them. */
export const readable = (text: string) => text.trim().replaceAll(/\n\s*\n(\s*\n)+/g, "\n\n");

function AnswerPair({ answered: { prompt, base, tuned } }: { answered: Evaluation["prompts"][number] }) {
  return (
    <li className="rounded-card border border-line px-3.5 py-2.5">
      <p className="mb-2 max-h-24 overflow-y-auto font-[540] wrap-anywhere whitespace-pre-wrap">{readable(prompt)}</p>
      <div className={base === null ? "grid gap-3" : "grid gap-3 md:grid-cols-2"}>
        {base !== null && <AnswerText name="Base" text={base} />}
        {tuned !== null && <AnswerText name="Tuned" text={tuned} before={base} />}
      </div>
    </li>
  );
}

export function AnswerText({ name, text, before }: { name: string; text: string; before?: string | null }) {
  const shown = readable(text);
  return (
    <div className="min-w-0">
      <p aria-hidden className={before === undefined ? "text-2xs text-faint" : "text-2xs text-violet-soft"}>
        {name}
      </p>
      <div
        role="group"
        aria-label={`Answer of ${name}`}
        // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
        tabIndex={0}
        className="max-h-32 overflow-y-auto text-sm wrap-anywhere whitespace-pre-wrap"
      >
        {shown === "" ? <span className="text-dim">empty answer</span> : before ? <Marked before={readable(before)} after={shown} /> : shown}
      </div>
    </div>
  );
}

/** The second text, with what the first did not have marked. */
export function Marked({ before, after }: { before: string; after: string }) {
  return wordDiff(before, after).map((piece, index) =>
    piece.kind === "removed" ? null : piece.kind === "added" ? (
      // oxlint-disable-next-line react/no-array-index-key
      <mark key={index} className="rounded-sm bg-success/20 text-success-soft">
        {piece.text}
      </mark>
    ) : (
      piece.text
    ),
  );
}

type DiffPiece = { text: string; kind: "same" | "removed" | "added" };

// The table of lengths grows with the product; two long answers are compared as wholes.
const MOST_CELLS = 400_000;

const wordsOf = (text: string) => text.match(/\s+|[^\s]+/g) ?? [];

/** One text in pieces: `removed` is only in the first, `added` only in the second. */
export function wordDiff(before: string, after: string): DiffPiece[] {
  const a = wordsOf(before);
  const b = wordsOf(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  return joined([
    ...a.slice(0, start).map((text): DiffPiece => ({ text, kind: "same" })),
    ...between(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...a.slice(a.length - end).map((text): DiffPiece => ({ text, kind: "same" })),
  ]);
}

function between(a: string[], b: string[]): DiffPiece[] {
  if (a.length * b.length > MOST_CELLS) {
    return [...a.map((text): DiffPiece => ({ text, kind: "removed" })), ...b.map((text): DiffPiece => ({ text, kind: "added" }))];
  }
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => lengths[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const pieces: DiffPiece[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const [left, right] = [a[i], b[j]];
    if (left !== undefined && left === right) {
      pieces.push({ text: left, kind: "same" });
      i += 1;
      j += 1;
    } else if (left !== undefined && (right === undefined || at(i + 1, j) >= at(i, j + 1))) {
      pieces.push({ text: left, kind: "removed" });
      i += 1;
    } else if (right !== undefined) {
      pieces.push({ text: right, kind: "added" });
      j += 1;
    }
  }
  return pieces;
}

function joined(pieces: DiffPiece[]): DiffPiece[] {
  const merged: DiffPiece[] = [];
  for (const piece of pieces) {
    const last = merged.at(-1);
    if (last?.kind === piece.kind) last.text += piece.text;
    else merged.push({ ...piece });
  }
  return merged;
}
