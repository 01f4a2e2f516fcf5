/** "Did it improve?": the loss on the held-out rows before training, at its best and now, as one plain answer. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Check, CircleHelp, X } from "lucide-react";
import { useSyncExternalStore } from "react";
import { improvementQuery, isResting, jobQuery, samplesQuery } from "@/api/jobs";
import { tasksQuery } from "@/api/tasks";
import type { Job, JobImprovement, JobSamples } from "@/api/types";
import type { CurveStore } from "@/charts/curve-store";
import { cn } from "@/components/class-names";
import { Card } from "@/components/card";
import { Loaded, Skeleton } from "@/components/loaded";
import { Badge } from "@/components/notice";
import { countText, metricText } from "@/text/numbers";

type Improvement = NonNullable<JobImprovement["improvement"]>;

const TEXT_COLOURS = { yes: "text-success-soft", no: "text-danger-soft", unclear: "text-dim" } as const;

const TONES = { yes: { tone: "good", icon: Check }, no: { tone: "bad", icon: X }, unclear: { tone: "neutral", icon: CircleHelp } } as const;

const changeText = (before: number, after: number) => {
  const percent = Math.round((after / before - 1) * 100);
  return percent === 0 ? "about the same" : `${percent < 0 ? "−" : "+"}${Math.abs(percent)} % eval loss`;
};

export function ImprovementCard({ job, store }: { job: Job; store: CurveStore }) {
  // Asked again with every evaluation, and when the run is at rest: then its findings are complete.
  const evaluated = useSyncExternalStore(store.subscribe, () => store.curve("eval/loss")?.x.length ?? 0);
  const improvement = useQuery(improvementQuery(job, evaluated));
  const found = improvement.data?.improvement ?? null;
  const answer = useNewestAnswer(job);
  return (
    <Card aria-label="Did it improve?" className={cn("grid p-0", answer && "lg:grid-cols-[5fr_7fr]")}>
      <div className="px-4 py-3.5">
        <div className="mb-2 flex flex-wrap items-center justify-between gap-x-4 gap-y-1">
          <h2 className="text-[13px] font-[590]">Did it improve?</h2>
          {found && <Verdict found={found} />}
        </div>
        {job.summary.values["eval/loss"] === undefined && !found ? (
          <p className="text-dim">{waitingText(job)}</p>
        ) : (
          <Loaded query={improvement} skeleton={<Skeleton className="h-33" />}>
            {() => (found ? <Compared found={found} /> : <p className="text-dim">{waitingText(job)}</p>)}
          </Loaded>
        )}
        <p className="mt-2 text-xs text-dim">
          <Link to="." search={{ tab: "evaluate" }} className="text-violet-soft underline decoration-violet-soft/50 underline-offset-3">
            {job.has_model ? "Evaluate on other data and prompts" : "All evaluations"}
          </Link>
        </p>
      </div>
      {answer && <SampleAnswers answer={answer} />}
    </Card>
  );
}

function Verdict({ found: { verdict, text } }: { found: Improvement }) {
  const { tone, icon: Icon } = TONES[verdict];
  return (
    <Badge tone={tone}>
      <Icon aria-hidden className="size-3" />
      {text}
    </Badge>
  );
}

export function Compared({ found: { first, lowest, latest, not_finite_since: notFiniteSince, compared, verdict, interval, has_best } }: { found: Improvement }) {
  const noteOf = (step: number) => [step === lowest.step && verdict === "yes" && (has_best ? "best" : "lowest"), step === latest.step && (notFiniteSince === null ? "latest" : "last finite")].filter(Boolean).join(", ");
  const rows = [
    { name: first.step === 0 ? "Base model" : `First evaluation, step ${countText(first.step)}`, note: null, ...first },
    ...(verdict === "yes" && lowest.step !== latest.step ? [{ name: `Step ${countText(lowest.step)}`, note: noteOf(lowest.step), ...lowest }] : []),
    ...(latest.step === first.step ? [] : [{ name: `Step ${countText(latest.step)}`, note: noteOf(latest.step), ...latest }]),
  ];
  const isOnlyOne = latest.step === first.step && notFiniteSince === null;
  return (
    <>
      <p className="text-[26px] leading-tight font-[620] tracking-[-0.025em] tabular-nums">
        {metricText(first.loss)}
        {!isOnlyOne && (
          <>
            {" "}
            <span className="font-normal text-dim">→</span> {notFiniteSince === null ? metricText(compared.loss) : "not finite"}
          </>
        )}
        {!isOnlyOne && notFiniteSince === null && <small className={cn("ml-2 text-base font-[520] tracking-normal", TEXT_COLOURS[verdict])}>{changeText(first.loss, compared.loss)}</small>}
      </p>
      {interval && notFiniteSince === null && (
        <p className="text-xs text-dim" title="Compared batch by batch with the first evaluation. A change whose interval contains 0 may be noise.">
          {interval[0]?.toUpperCase()}
          {interval.slice(1).replaceAll("-", "−")}
        </p>
      )}
      <table className="mt-2 w-full max-w-md text-sm">
        <caption className="sr-only">Loss on the held-out rows</caption>
        <thead className="text-2xs text-faint">
          <tr>
            <th scope="col" className="text-left font-[450]">
              <span className="sr-only">Model</span>
            </th>
            <th scope="col" className="pl-3 text-right font-[450]">
              Eval loss
            </th>
            <th scope="col" className="pl-3 text-right font-[450]">
              Perplexity
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ name, note, step, loss }) => (
            <tr key={step} className="border-t border-line">
              <th scope="row" className="py-1 text-left font-[450]">
                {name} {note && <span className={note.startsWith("best") ? "text-success-soft" : "text-dim"}>{note}</span>}
              </th>
              <td className="py-1 pl-3 text-right font-[560] tabular-nums">{metricText(loss)}</td>
              <td className="py-1 pl-3 text-right text-dim tabular-nums">{loss < 700 ? metricText(Math.exp(loss)) : "∞"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function waitingText(job: Job): string {
  const every = job.settings.eval_every_steps ?? job.config?.eval.every_steps;
  if (job.kind === "script") return "The script has reported no eval loss. Log eval/loss to see an answer here.";
  if (job.kind === "run") return "The run has reported no eval loss. Report eval/loss to see an answer here.";
  if (isResting(job.status)) return `The run was not evaluated, so nobody can tell.${job.has_model ? " Evaluate the model now, or set an eval split next time." : ""}`;
  return every ? `First evaluation at step ${countText(every)}.` : "First evaluation at the end of the epoch.";
}

type Answer = { prompt: string; base: string | null; tuned: string | null; step: number | null };

/** A prompt with both answers: of the newest evaluation that has any, else of the samples that the run wrote. */
function useNewestAnswer(job: Job): Answer | null {
  const tasks = useQuery({ ...tasksQuery(job.id, "evaluate"), enabled: job.kind === "train" });
  const newest = tasks.data?.items.find(({ status }) => status === "completed");
  const task = useQuery({ ...jobQuery(newest?.id ?? ""), enabled: newest !== undefined });
  const samples = useQuery({ ...samplesQuery(job), enabled: job.kind === "train" });
  const result = task.data?.result;
  const [asked] = result?.kind === "evaluate" ? result.prompts : [];
  return asked ? { ...asked, step: null } : sampleAnswer(samples.data?.items ?? []);
}

/** The first prompt before training and at the last step that answered it. */
export function sampleAnswer([first]: JobSamples["items"]): Answer | null {
  const last = first?.answers.at(-1);
  if (!first || !last || last.step === 0) return null;
  return { prompt: first.prompt, base: first.answers.find(({ step }) => step === 0)?.text ?? null, tuned: last.text, step: last.step };
}

function SampleAnswers({ answer: { prompt, base, tuned, step } }: { answer: Answer }) {
  return (
    <div className="flex flex-col border-line px-4 py-3.5 max-lg:border-t lg:border-l">
      <div className="mb-2 flex items-center justify-between gap-4">
        <h2 className="text-[13px] font-[590]">Sample answers</h2>
        <Link to="." search={{ tab: "samples" }} className="text-sm text-violet-soft underline-offset-3 hover:underline">
          All samples
        </Link>
      </div>
      <p className="mb-2 line-clamp-2 rounded-control bg-white/5 px-3 py-2 font-[540] wrap-anywhere">{prompt}</p>
      <div className="grid grow gap-2 md:grid-cols-2">
        {base !== null && <ShortAnswer name="Base model" text={base} />}
        {tuned !== null && <ShortAnswer name={step === null ? "Tuned" : `Tuned, step ${countText(step)}`} text={tuned} tuned />}
      </div>
    </div>
  );
}

function ShortAnswer({ name, text, tuned = false }: { name: string; text: string; tuned?: boolean }) {
  const shown = text.trim();
  return (
    <div className={cn("min-w-0 rounded-control border px-3 py-2", tuned ? "border-violet-soft/35 bg-violet/12" : "border-line")}>
      <h3 className={cn("text-2xs", tuned ? "text-violet-soft" : "text-faint")}>{name}</h3>
      <p className="line-clamp-6 text-sm wrap-anywhere whitespace-pre-line">{shown === "" ? <span className="text-dim">empty answer</span> : shown.replaceAll(/\n{2,}/g, "\n")}</p>
    </div>
  );
}
