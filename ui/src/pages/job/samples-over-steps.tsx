/** Sample generations: what the model answers to the same prompts as training goes on, one step beside another. */
import { useQuery } from "@tanstack/react-query";
import { ChevronLeft, ChevronRight, Sparkles } from "lucide-react";
import { useId, useState } from "react";
import { isResting, samplesQuery } from "@/api/jobs";
import type { Job, JobSamples } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { PageSteps } from "@/components/data-table";
import { Select } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { countText } from "@/text/numbers";
import { AnswerText, readable } from "./evaluation-card";

type Samples = JobSamples["items"];

const PER_PAGE = 3;

/** All steps at which a prompt was answered, in order. */
export const sampleSteps = (samples: Samples) => [...new Set(samples.flatMap(({ answers }) => answers.map(({ step }) => step)))].toSorted((a, b) => a - b);

/** The answer at a step; undefined where this prompt was not answered there. */
export const answerAt = ({ answers }: Samples[number], step: number | undefined) => answers.find((each) => each.step === step)?.text;

const stepText = (step: number) => (step === 0 ? "Before training" : `Step ${countText(step)}`);

export function SamplesOverSteps({ job }: { job: Job }) {
  const samples = useQuery(samplesQuery(job));
  return (
    <Card aria-label="Samples over steps">
      <Loaded query={samples} skeleton={<SkeletonRows rows={3} className="h-24" />}>
        {({ items }) => (items.length === 0 ? <NoSamples job={job} /> : <Timeline samples={items} greedy={job.kind === "train"} />)}
      </Loaded>
    </Card>
  );
}

function NoSamples({ job }: { job: Job }) {
  const asked = (job.config?.eval.prompts ?? []).length > 0;
  const text =
    job.kind !== "train"
      ? "The run has reported no samples. Call reporter.sample(prompt, text, step) to see them here."
      : asked && !isResting(job.status)
        ? "The answers to the sample prompts appear here before the first step and at every evaluation."
        : "The run had no sample prompts. Enter some under “Sample generations” when you start the next run.";
  return (
    <>
      <CardHeader title="Samples over steps" />
      <EmptyState icon={Sparkles} title="No samples yet.">
        {text}
      </EmptyState>
    </>
  );
}

/** `greedy`: our trainers answer so; how a script decodes is not known. */
function Timeline({ samples, greedy }: { samples: Samples; greedy: boolean }) {
  const steps = sampleSteps(samples);
  const id = useId();
  const [chosen, setChosen] = useState<number | null>(null);
  const [against, setAgainst] = useState<number | null>(null);
  const [page, setPage] = useState(1);
  // The newest step follows the run until somebody chooses one.
  const index = chosen === null || !steps.includes(chosen) ? steps.length - 1 : steps.indexOf(chosen);
  const step = steps[index] ?? 0;
  const other = against !== null && steps.includes(against) ? against : (steps[0] ?? 0);
  const choose = (to: number) => setChosen(to >= steps.length - 1 ? null : (steps[Math.max(0, to)] ?? null));
  return (
    <>
      <CardHeader title="Samples over steps" note={greedy ? "greedy answers to your prompts" : "answers to the same prompts"}>
        <Select aria-label="Compare with" className="w-auto max-sm:w-full" value={String(other)} onChange={(event) => setAgainst(Number(event.target.value))} options={steps.map((each) => [String(each), `Compare with: ${stepText(each).toLowerCase()}`] as const)} />
      </CardHeader>
      <div className="mb-3 flex items-center gap-2">
        <Button size="small" aria-label="Previous sample" disabled={index === 0} onClick={() => choose(index - 1)}>
          <ChevronLeft aria-hidden />
        </Button>
        <label htmlFor={id} className="sr-only">
          Step of the samples
        </label>
        <input id={id} type="range" min={0} max={Math.max(0, steps.length - 1)} value={index} aria-valuetext={stepText(step)} onChange={(event) => choose(Number(event.target.value))} className="h-9 min-w-0 grow accent-violet" />
        <Button size="small" aria-label="Next sample" disabled={index === steps.length - 1} onClick={() => choose(index + 1)}>
          <ChevronRight aria-hidden />
        </Button>
        <output htmlFor={id} className="min-w-28 text-right text-sm font-[560] tabular-nums">
          {stepText(step)}
        </output>
      </div>
      <ol className="grid gap-3">
        {samples.slice((page - 1) * PER_PAGE, page * PER_PAGE).map((sample) => (
          <Answers key={sample.prompt} sample={sample} step={step} other={other} />
        ))}
      </ol>
      <PageSteps page={page} pageSize={PER_PAGE} total={samples.length} onTurn={setPage} label="Pages of sample prompts" />
    </>
  );
}

function Answers({ sample, step, other }: { sample: Samples[number]; step: number; other: number }) {
  const before = other === step ? undefined : answerAt(sample, other);
  const now = answerAt(sample, step);
  return (
    <li className="rounded-card border border-line px-3.5 py-2.5">
      <p className="mb-2 line-clamp-3 font-[540] wrap-anywhere whitespace-pre-line" title={sample.prompt}>
        {readable(sample.prompt)}
      </p>
      <div className={before === undefined ? "grid gap-3" : "grid gap-3 md:grid-cols-2"}>
        {before !== undefined && <AnswerText name={stepText(other)} text={before} />}
        {now === undefined ? <p className="text-sm text-dim">Not answered at this step.</p> : <AnswerText name={stepText(step)} text={now} before={before ?? null} />}
      </div>
    </li>
  );
}
