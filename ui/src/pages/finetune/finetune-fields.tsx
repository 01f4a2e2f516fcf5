/** Fields of the fine-tuning form: method, backend, and the learning-rate finder. */
import { useQueries, useQuery } from "@tanstack/react-query";
import { Search } from "lucide-react";
import { lazy, type ReactNode, Suspense, useState } from "react";
import { useFormContext, useWatch } from "react-hook-form";
import { backendsQuery, createJob, planQuery } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import type { NewJob, PlanRequest } from "@/api/types";
import { Button } from "@/components/button";
import { Hint } from "@/components/hint";
import { Select, useDebounced } from "@/components/input";
import { Skeleton } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { ChoiceCards, Field } from "@/forms/field";
import { CONFIG_GROUPS, withAdapters } from "@/forms/job-fields";
import type { JobFormValues } from "@/forms/job-form";
import { ConfigAccordion, ConfigFields, OneField, TrainingAccordions, useConfigValues, useFieldError } from "@/pages/new-job/config-fields";
import { settingText } from "@/text/numbers";
import { costText, METHODS, withMethod } from "./finetune-rules";

const [EPOCHS, RATE, BATCH] = CONFIG_GROUPS.training;
const LENGTH = CONFIG_GROUPS.sizes[5];
const METHOD = CONFIG_GROUPS.method[0];

type MethodFieldsProps = { request: PlanRequest; complete: boolean; finder: ReactNode };

/** How it is trained: the decisions that most people make. */
export function MethodFields({ request, complete, finder }: MethodFieldsProps) {
  const { register } = useFormContext<JobFormValues>();
  const error = useFieldError();
  const cards = useMethodCards(request, complete);
  return (
    <div className="grid gap-3.5">
      <ChoiceCards label="Training method" registration={register("config.method" as keyof JobFormValues)} options={cards} error={error("config.method")} />
      <div className="grid grid-cols-2 items-start gap-3.5 sm:grid-cols-4">
        {[EPOCHS, RATE, BATCH, LENGTH].map((field) => (
          <OneField key={field.path} field={field} compact />
        ))}
      </div>
      {finder}
    </div>
  );
}

/** Everything else about the training. Each closed heading says the values in it. */
export function SettingsAccordions() {
  const values = useConfigValues();
  return (
    <>
      {withAdapters(values) && (
        <ConfigAccordion
          title="LoRA adapters"
          group="adapters"
          parts={[
            ["lora.rank", (value) => `rank ${value}`],
            ["lora.alpha", (value) => `alpha ${value}`],
            ["lora.dropout", (value) => `dropout ${value}`],
            ["lora.targets", (value) => `modules ${value}`],
          ]}
        >
          <ConfigFields group="adapters" />
        </ConfigAccordion>
      )}
      <ConfigAccordion
        title="Training examples"
        group="examples"
        parts={[
          ["data.train_on", (value) => `trains on ${value.toLowerCase()}`],
          ["data.packing", (value) => `packing: ${value.toLowerCase()}`],
          ["data.too_long", (value) => `truncation: ${value.toLowerCase()}`],
          ["data.eval_fraction", (value) => `eval split ${value}`],
        ]}
      >
        <ConfigFields group="examples" />
      </ConfigAccordion>
      <ConfigAccordion title="Sequences longer than the model’s context" group="positions" parts={[["model.rope_scaling", (value) => `RoPE scaling: ${value}`]]}>
        <ConfigFields group="positions" />
      </ConfigAccordion>
      <TrainingAccordions />
      <ConfigAccordion title="Backend" group="backend" parts={[["backend", (value) => value]]}>
        <BackendField />
      </ConfigAccordion>
    </>
  );
}

const [FIELD] = CONFIG_GROUPS.backend;

/** What trains. One that cannot run here can be chosen too: then it says why not, and what to do. */
function BackendField() {
  const backends = useQuery(backendsQuery);
  const { register } = useFormContext<JobFormValues>();
  const error = useFieldError();
  const config = useWatch<JobFormValues, "config">({ name: "config" });
  const chosen = backends.data?.find(({ name }) => name === (config.backend || FIELD.initial));
  const options = (FIELD.options ?? []).map(([name, text]) => {
    const known = backends.data?.find((backend) => backend.name === name);
    return [name, known && !known.available ? `${text}, not available` : text] as const;
  });
  return (
    <Field label={FIELD.label} error={error("config.backend") ?? (chosen?.available === false ? (chosen.reason ?? undefined) : undefined)} help={chosen?.brings} className="sm:col-span-2 xl:col-span-3">
      {(control) => <Select options={options} {...register("config.backend" as keyof JobFormValues)} {...control} />}
    </Field>
  );
}

const PAUSE = 600;

/** The methods as cards, each with what it would cost once the typing pauses. */
function useMethodCards(request: PlanRequest, complete: boolean) {
  const wanted = JSON.stringify(request);
  const settled = useDebounced(wanted, PAUSE);
  const answers = useQueries({
    queries: METHODS.map((method) => ({ ...planQuery(withMethod(JSON.parse(settled) as PlanRequest, method)), enabled: complete })),
  });
  return METHODS.map((method, index) => {
    const cost = complete ? costText(answers[index]?.data) : null;
    const [, label, note] = METHOD.options?.find(([name]) => name === method) ?? [method, method];
    return [method, label, [note, cost].filter(Boolean).join(", ")] as const;
  });
}

const LearningRateFinder = lazy(() => import("@/pages/job/learning-rate-finder").then((module) => ({ default: module.LearningRateFinder })));

type RateFinderProps = { ready: boolean; bodyOf: (checked: JobFormValues) => NewJob };

/** A short sweep over learning rates with everything else as in the form; its suggestion can be taken over. */
export function RateFinder({ ready, bodyOf }: RateFinderProps) {
  const { handleSubmit, setValue } = useFormContext<JobFormValues>();
  const [jobId, setJobId] = useState<string | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [pending, setPending] = useState(false);

  const find = handleSubmit(async (checked) => {
    setPending(true);
    setFailure(null);
    try {
      const job = await createJob({ ...bodyOf(checked), kind: "find_learning_rate" });
      // A project that was made for the sweep is also the training's.
      setValue("project", job.project_id);
      setJobId(job.id);
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  });

  return (
    <div className="grid gap-3">
      <div className="flex items-center gap-1">
        <Button size="small" pending={pending} disabled={!ready} onClick={() => void find()}>
          {!pending && <Search aria-hidden />}
          {jobId ? "Search again" : "Find a good learning rate"}
        </Button>
        <Hint about="Find a good learning rate">Trains a few steps with rising learning rates, as a job of its own, and suggests one. The sweep does not change the model.</Hint>
      </div>
      {failure && (
        <Notice tone="bad" role="alert">
          {failure}
        </Notice>
      )}
      {jobId && (
        <section aria-label="Learning-rate finder" className="rounded-control border border-line px-3.5 py-3">
          <Suspense fallback={<Skeleton className="h-52" />}>
            <LearningRateFinder key={jobId} jobId={jobId} onUse={(rate) => setValue("config.learning_rate" as keyof JobFormValues, settingText(rate), { shouldDirty: true, shouldValidate: true })} />
          </Suspense>
        </section>
      )}
    </div>
  );
}
