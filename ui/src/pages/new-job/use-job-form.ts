import { zodResolver } from "@hookform/resolvers/zod";
import { useNavigate, useRouter } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { useForm, useWatch } from "react-hook-form";
import { isSignedIn } from "@/api/auth";
import { createJob } from "@/api/jobs";
import type { NearestFit, PlanRequest, RequestedConfig } from "@/api/types";
import { toast } from "@/components/toasts";
import { forgetJobDraft, type JobDraft, loadJobDraft, saveJobDraft } from "@/forms/job-draft";
import { type ConfigValues, type Json, missingIn } from "@/forms/job-fields";
import { configOf, gpuTypeOf, idsOf, jobFailure, type JobFormValues, NEW_PROJECT, newJobBody, numberMistakesIn, OTHER_GPU, parseConfig, valuesOf, withValue } from "@/forms/job-form";
import { parseNumber } from "@/forms/rules";
import type { z } from "@/forms/zod";
import { useCurrentUser } from "@/shell/session";
import { usePlan } from "./plan-card";
import type { RentalChoice } from "./where-card";

export type Mode = "form" | "json";

type JobFormStart = {
  values: JobFormValues;
  /** The config that the values show. */
  config: Json;
  rules: z.ZodType;
  /** What else has to be there before there is anything to plan. */
  missing?: (values: JobFormValues) => string | null;
  /** What the job is called when nothing is typed; without it the server names it. */
  usualName?: (values: JobFormValues) => string | null;
};

/** One job in the making, seen as a form or as JSON; switching between them keeps everything. */
export function useJobForm(begin: JobFormStart) {
  const navigate = useNavigate();
  const { draft, keep, forget } = useDraft();
  const [mode, setMode] = useState<Mode>(draft !== null && draft.json !== null ? "json" : "form");
  const [first] = useState(draft?.config ?? begin.config);
  const [base, setBase] = useState(first);
  const [json, setJson] = useState(draft?.json ?? "");
  const [failures, setFailures] = useState<string[]>([]);
  const [rental, setRental] = useState<RentalChoice | null>(null);
  const form = useForm<JobFormValues>({
    resolver: zodResolver(begin.rules as never) as never,
    defaultValues: draft?.values ?? begin.values,
    mode: "onTouched",
  });
  const values = useWatch({ control: form.control }) as JobFormValues;
  // As JSON it is taken at its word; the form leaves out what does not apply.
  const config = mode === "json" ? base : configOf(values.config, base);
  const isChanged = form.formState.isDirty || base !== first || mode === "json";
  useEffect(() => keep({ values, config: base, json: mode === "json" ? json : null }, isChanged));
  const missing = begin.missing?.(values) ?? (mode === "form" ? whatToCorrect(values.config) : null);
  const mistake = mode === "json" ? parseConfig(json).mistake : null;
  const rentalMistake = rental === "wrong" ? "Correct the values under “Rent an instance”." : null;

  const request: PlanRequest = {
    config: config as RequestedConfig,
    project_id: values.project === NEW_PROJECT ? null : values.project,
    ...idsOf(values),
    gpu_type: gpuTypeOf(values),
    host_memory: parseNumber(values.host_memory),
  };
  const planned = usePlan(request, missing === null);

  function typeJson(text: string) {
    setJson(text);
    setFailures([]);
    const parsed = parseConfig(text);
    if (parsed.config === null) return;
    setBase(parsed.config);
    form.setValue("config", valuesOf(parsed.config));
  }

  /** Takes up what the plan proposes: other settings, or another machine. */
  function take({ changes, gpu_type, host_memory }: NearestFit) {
    change(changes as Json);
    if (host_memory !== null) form.setValue("host_memory", String(host_memory));
    if (gpu_type !== null && gpuTypeOf(form.getValues()) === null) {
      form.setValue("gpu", OTHER_GPU);
      form.setValue("otherGpu", gpu_type);
    }
  }

  /** Sets fields of the config, in whichever way it is shown. */
  function change(changes: Json) {
    const next = Object.entries(changes).reduce((tree, [path, value]) => withValue(tree, path, value), config);
    setBase(next);
    form.setValue("config", valuesOf(next), { shouldValidate: form.formState.isSubmitted });
    setJson(JSON.stringify(next, null, 2));
    setFailures([]);
  }

  function switchTo(next: Mode) {
    if (next === mode) return;
    // JSON that cannot be read cannot become a form; its mistake is shown where it is.
    if (next === "form" && mistake !== null) return;
    if (next === "json") setJson(JSON.stringify(config, null, 2));
    setFailures([]);
    setMode(next);
  }

  const start = form.handleSubmit(
    async (checked) => {
      if (mistake !== null) return;
      const lacking = begin.missing?.(checked) ?? rentalMistake;
      setFailures(lacking ? [lacking] : []);
      if (lacking || rental === "wrong") return;
      try {
        const job = await createJob({ ...bodyOf(checked), ...rental });
        toast(`Job “${job.name}” is queued.`);
        forget();
        await navigate({ to: "/projects/$projectId/jobs/$jobId", params: { projectId: job.project_id, jobId: job.id } });
      } catch (error) {
        show(jobFailure(error, checked.gpu));
      }
    },
    (errors) => {
      // The fields of the config are not on the page while it is shown as JSON.
      if (mode === "json" && errors.config) setFailures(["The config contains an invalid value. Switch to the form to see which one."]);
    },
  );

  /** What starts the job, or something else about the same config. */
  function bodyOf(checked: JobFormValues) {
    const name = checked.name.trim() || begin.usualName?.(checked) || "";
    return newJobBody({ ...checked, name }, config, planned.answer.data?.plan?.parameters ?? null);
  }

  function show({ fields, others }: ReturnType<typeof jobFailure>) {
    const hidden = mode === "json" ? fields.filter(({ path }) => path.startsWith("config.")) : [];
    setFailures([...others, ...hidden.map(({ path, message }) => `${path}: ${message}`)]);
    const visible = fields.filter((field) => !hidden.includes(field));
    visible.forEach(({ path, message }, index) =>
      form.setError(path as keyof JobFormValues, { type: "server", message }, { shouldFocus: index === 0 }),
    );
  }

  return { form, draft, values, config, request, mode, switchTo, json, typeJson, mistake, rentalMistake, failures, planned, missing, take, change, setRental, start, bodyOf, show };
}

/** What stands in the way of a plan. */
function whatToCorrect(config: ConfigValues): string | null {
  const [missing] = missingIn(config);
  const [wrong] = numberMistakesIn(config);
  return missing?.sentence ?? (wrong ? `Correct the field “${wrong.field.label}”.` : null);
}

/** What was typed before, and ways to keep what is typed now and to forget it. */
function useDraft() {
  const { history } = useRouter();
  const { id: owner } = useCurrentUser();
  const [entry] = useState(() => {
    const { __TSR_key: key = "" } = history.location.state;
    return key;
  });
  const [draft] = useState(() => loadJobDraft(entry, owner));
  const isKept = useRef(draft !== null);
  const isDone = useRef(false);

  /** A form that nobody changed is not kept: it may still be filled in from elsewhere. */
  function keep(now: JobDraft, isChanged: boolean) {
    isKept.current ||= isChanged;
    // The page outlives its job and its person by a moment.
    if (isKept.current && !isDone.current && isSignedIn(owner)) saveJobDraft(entry, owner, now);
  }

  function forget() {
    isDone.current = true;
    forgetJobDraft(entry);
  }

  return { draft, keep, forget };
}
