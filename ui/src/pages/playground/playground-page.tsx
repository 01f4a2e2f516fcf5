/** The playground: choice of a model, then the chat. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { MessagesSquare } from "lucide-react";
import { useMemo, useState } from "react";
import { checkpointsQuery, jobQuery, jobsQuery } from "@/api/jobs";
import { modelsQuery } from "@/api/models";
import type { Source } from "@/api/playground";
import { isGone } from "@/api/problem";
import type { Checkpoint, Job } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { GroupedSelect, Select } from "@/components/input";
import { EmptyState, Loaded, LoadFailure, Skeleton } from "@/components/loaded";
import { Field } from "@/forms/field";
import { DemoButton } from "@/pages/jobs/new-job-link";
import type { PlaygroundSearch } from "@/shell/address";
import { PageHeader, usePageTitle } from "@/shell/page";
import { countText, metricText } from "@/text/numbers";
import { Chat } from "./chat";

const route = getRouteApi("/app/playground");

export function PlaygroundPage() {
  usePageTitle("Playground");
  const search = route.useSearch();
  const navigate = useNavigate({ from: "/playground" });
  // Another choice begins another conversation; what is typed for the next message stays.
  const [draft, setDraft] = useState("");
  const choices = useChoices(search);
  return (
    <>
      <PageHeader title="Playground" />
      {!choices.isEmpty && (
        <div className="mb-3.5">
          <ModelChoice choices={choices} chosen={search} onChoose={(next) => void navigate({ search: next })} />
        </div>
      )}
      <Chosen search={search} isEmpty={choices.isEmpty} draft={draft} onDraft={setDraft} />
    </>
  );
}

type ChosenProps = { search: PlaygroundSearch; isEmpty: boolean; draft: string; onDraft: (text: string) => void };

function Chosen({ search: { job: jobId, checkpoint, other, model }, isEmpty, draft, onDraft }: ChosenProps) {
  const job = useQuery({ ...jobQuery(jobId ?? ""), enabled: jobId !== undefined });
  const source = useMemo<Source | null>(() => {
    if (model) return { model_id: model };
    return jobId ? { job_id: jobId, ...(checkpoint ? { checkpoint_id: checkpoint } : {}), ...(other ? { other_checkpoint_id: other } : {}) } : null;
  }, [jobId, checkpoint, other, model]);
  const checkpoints = useQuery({ ...checkpointsQuery(jobId ?? ""), enabled: jobId !== undefined && other !== undefined }).data?.items;
  if (source === null) return <NothingChosen isEmpty={isEmpty} />;
  if (isGone(job.error)) return <NothingChosen gone isEmpty={isEmpty} />;
  const key = [jobId ?? model, checkpoint, other && `and ${other}`].filter(Boolean).join(" ");
  const nameOf = (id: string | undefined) => {
    const step = checkpoints?.find((one) => one.id === id)?.step;
    return step === undefined ? (id ? "Checkpoint" : "Final model") : `Step ${countText(step)}`;
  };
  const names = other ? { tuned: nameOf(checkpoint), model: nameOf(checkpoint), other: nameOf(other) } : undefined;
  const chat = <Chat key={key} source={source} storageKey={key} names={names} draft={draft} onDraft={onDraft} />;
  if (!jobId || checkpoint) return chat;
  return (
    <Loaded query={job} skeleton={<Skeleton className="h-80 rounded-card" />}>
      {/* A run that is not finished has only its checkpoints. */}
      {({ has_model: hasModel, status }) => (hasModel && status === "completed" ? chat : <ChooseCheckpoint />)}
    </Loaded>
  );
}

/** `isEmpty`: there is nothing to choose. */
function NothingChosen({ gone = false, isEmpty }: { gone?: boolean; isEmpty: boolean }) {
  const title = gone ? "This run no longer exists." : isEmpty ? "No model to chat with yet." : "Choose a run or a model.";
  return (
    <Card>
      <EmptyState
        icon={MessagesSquare}
        title={title}
        action={
          isEmpty && (
            <span className="flex flex-wrap justify-center gap-2">
              <Button asChild variant="primary">
                <Link to="/models">Add a model</Link>
              </Button>
              <DemoButton variant="outline" />
            </span>
          )
        }
      >
        You can chat with a finished run, with a checkpoint, or with one of your models. The model is unloaded after ten minutes without a request.
      </EmptyState>
    </Card>
  );
}

function ChooseCheckpoint() {
  return (
    <Card>
      <EmptyState icon={MessagesSquare} title="This run is not finished.">
        Choose a checkpoint of the run above, or come back when the run is finished.
      </EmptyState>
    </Card>
  );
}

const MOST = 100;

/** The runs and models that somebody can chat with. */
export function useChoices(chosen: PlaygroundSearch) {
  const jobs = useQuery(jobsQuery({ limit: MOST }));
  const models = useQuery(modelsQuery);
  // An older run, opened by its address, is not among the newest.
  const other = useQuery({ ...jobQuery(chosen.job ?? ""), enabled: chosen.job !== undefined });
  // A script leaves files, not a model.
  const trained = (jobs.data?.items ?? []).filter((job) => job.kind === "train" && job.attempt > 0);
  const listed = other.data && !trained.some((job) => job.id === other.data.id) ? [other.data, ...trained] : trained;
  const ready = (models.data?.items ?? []).filter((model) => model.status === "ready");
  return { jobs, models, other: other.data, listed, ready, isEmpty: jobs.isSuccess && models.isSuccess && listed.length + ready.length === 0 };
}

type ModelChoiceProps = { choices: ReturnType<typeof useChoices>; chosen: PlaygroundSearch; onChoose: (next: PlaygroundSearch) => void };

/** A run or an own model, and of a run which of its states. */
export function ModelChoice({ choices: { jobs, models, other, listed, ready }, chosen, onChoose }: ModelChoiceProps) {
  const groups = [
    { title: "Runs", options: listed.map((job) => [`job ${job.id}`, job.name] as const) },
    { title: "Models", options: ready.map((model) => [`model ${model.id}`, model.name] as const) },
  ];
  const value = chosen.job ? `job ${chosen.job}` : chosen.model ? `model ${chosen.model}` : "";

  function choose(next: string) {
    const [kind, id] = next.split(" ");
    onChoose(kind === "job" ? { job: id } : kind === "model" ? { model: id } : {});
  }

  return (
    <div className="grid gap-3.5 sm:grid-cols-2 lg:grid-cols-3">
      <Field label="Run or model">{(control) => <GroupedSelect {...control} first={["", "Choose a run or a model…"]} groups={groups} value={value} onChange={(event) => choose(event.target.value)} />}</Field>
      <LoadFailure query={jobs.data === undefined ? jobs : models} className="sm:order-last sm:col-span-full" />
      {chosen.job && other && <CheckpointChoice job={other} chosen={chosen} onChoose={onChoose} />}
    </div>
  );
}

/** Which state of a run, and a second one to compare with. */
function CheckpointChoice({ job, chosen, onChoose }: { job: Job } & Omit<ModelChoiceProps, "choices">) {
  const checkpoints = useQuery(checkpointsQuery(job.id));
  const items = checkpoints.data?.items ?? [];
  const first = job.has_model && job.status === "completed" ? (["", "Final model"] as const) : (["", items.length === 0 ? "No checkpoint yet" : "Choose a checkpoint"] as const);
  const others = items.filter(({ id }) => id !== chosen.checkpoint);
  return (
    <>
      <Field label="Checkpoint">
        {(control) => <Select {...control} options={[first, ...items.map(optionOf)]} value={chosen.checkpoint ?? ""} onChange={(event) => onChoose({ job: job.id, checkpoint: event.target.value || undefined, other: chosen.other === event.target.value ? undefined : chosen.other })} />}
      </Field>
      {others.length > 0 && (
        <Field label="Compare with checkpoint" optional>
          {(control) => <Select {...control} options={[["", "No second checkpoint"], ...others.map(optionOf)]} value={chosen.other ?? ""} onChange={(event) => onChoose({ ...chosen, other: event.target.value || undefined })} />}
        </Field>
      )}
    </>
  );
}

function checkpointText({ step, best, metrics }: Checkpoint): string {
  const loss = metrics["eval/loss"] ?? metrics.eval_loss;
  return [`Step ${countText(step)}`, typeof loss === "number" ? `eval loss ${metricText(loss)}` : null, best ? "best" : null].filter(Boolean).join(" · ");
}

const optionOf = (one: Checkpoint) => [one.id, checkpointText(one)] as const;
