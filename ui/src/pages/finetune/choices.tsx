/** Choice of the base model and of the dataset. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Plus, X } from "lucide-react";
import { useState } from "react";
import { useFieldArray, useFormContext, useWatch } from "react-hook-form";
import { datasetsQuery } from "@/api/datasets";
import { addModel, catalogueQuery, modelsQuery } from "@/api/models";
import { sentenceOf } from "@/api/problem";
import { NewJob } from "@/api/request-fields";
import type { CatalogueModel, Dataset, Model } from "@/api/types";
import { Accordion } from "@/components/accordion";
import { Button } from "@/components/button";
import { ProgressBar } from "@/components/figures";
import { LoadFailure } from "@/components/loaded";
import { ChooseFiles } from "@/uploads/file-input";
import { GroupedSelect, Input, Select } from "@/components/input";
import { Notice } from "@/components/notice";
import { toastFailure } from "@/components/toasts";
import { Field } from "@/forms/field";
import { CONFIG_GROUPS } from "@/forms/job-fields";
import type { JobFormValues } from "@/forms/job-form";
import { FORMAT_NAMES } from "@/pages/datasets/format-card";
import { AddModelButton } from "@/pages/models/add-model-dialog";
import { FindingsList } from "@/pages/models/findings-list";
import { OneField, useFieldError } from "@/pages/new-job/config-fields";
import { bytesText, counted, countText, parametersText } from "@/text/numbers";
import { sendDatasets } from "@/uploads/chosen-files";
import { FROM_HUB } from "./finetune-rules";

/** The model to begin with: one's own, or one of the catalogue that is fetched first. */
export function ModelChoice() {
  const { register, setValue } = useFormContext<JobFormValues>();
  const model_id = useWatch<JobFormValues, "model_id">({ name: "model_id" });
  const error = useFieldError();
  const models = useQuery(modelsQuery);
  const catalogue = useQuery(catalogueQuery);
  const own = models.data?.items ?? [];
  const listed = catalogue.data?.families.flatMap((family) => family.models) ?? [];
  const chosen = own.find(({ id }) => id === model_id);
  const wanted = listed.find(({ id }) => `${FROM_HUB}${id}` === model_id);
  const groups = [
    { title: "Your models", options: own.map((model) => [model.id, `${model.name}${modelStateText(model)}`] as const) },
    { title: "Catalogue (download first)", options: listed.filter(({ id }) => !own.some((model) => model.repository === id)).map(({ id, parameters }) => [`${FROM_HUB}${id}`, `${id} · ${parametersText(parameters)}`] as const) },
  ];
  const findings = chosen?.status === "ready" ? (chosen.check?.findings ?? []).filter(({ severity }) => severity !== "note") : [];
  const take = (model: Model) => setValue("model_id", model.id, { shouldDirty: true, shouldValidate: true });

  return (
    <div className="grid min-w-0 gap-2">
      <Field label="Model" note={<AddModelButton variant="ghost" size="label" onAdded={take} />} error={error("model_id")} help={chosen?.status === "ready" ? modelFacts(chosen) : undefined}>
        {(control) => (
          // The list arrives after the form: without its value the browser would keep showing the first entry.
          <GroupedSelect value={model_id} {...register("model_id")} {...control} first={["", "Choose a model…"]} groups={groups} />
        )}
      </Field>
      <LoadFailure query={models.data === undefined ? models : catalogue} />
      {wanted && <FetchFirst model={wanted} onFetching={take} />}
      {chosen?.status === "fetching" && <ProgressBar value={chosen.progress} label={`Downloading ${chosen.name}`} />}
      {chosen?.status === "failed" && <Notice tone="bad">{chosen.problem}</Notice>}
      {findings.length > 0 && <FindingsList findings={findings} />}
    </div>
  );
}

const modelStateText = ({ status }: Model) => ({ ready: "", fetching: ", downloading", uploading: ", uploading", failed: ", failed" })[status];

function modelFacts({ check, size }: Model): string {
  const facts = [
    check?.parameters && `${parametersText(check.parameters)} parameters`,
    check?.context_length && `context length ${countText(check.context_length)}`,
    check && (check.chat_template ? "chat template found" : "no chat template (a default one is used)"),
    size > 0 && bytesText(size),
  ];
  return facts.filter(Boolean).join(" · ");
}

function FetchFirst({ model, onFetching }: { model: CatalogueModel; onFetching: (model: Model) => void }) {
  const [pending, setPending] = useState(false);

  async function add() {
    setPending(true);
    try {
      onFetching(await addModel({ source: "hub", repository: model.id, revision: null }));
    } catch (error) {
      toastFailure(sentenceOf(error));
      setPending(false);
    }
  }

  return (
    <Notice className="flex flex-wrap items-center justify-between gap-3">
      <span className="min-w-0 flex-1 basis-48 text-sm">
        Not on this server yet. Download size: about {bytesText(model.parameters * 2)}. Licence: {model.licence}.{model.gated && " Accept the model’s terms on the Hugging Face Hub first."}
      </span>
      <Button variant="primary" pending={pending} onClick={() => void add()}>
        Download model
      </Button>
    </Notice>
  );
}

export const LISTED = { limit: 200 };

/** The examples to learn from: a dataset that is here, or a file that is sent from here. */
export function DataChoice() {
  const { register, setValue, getValues } = useFormContext<JobFormValues>();
  const dataset_id = useWatch<JobFormValues, "dataset_id">({ name: "dataset_id" });
  const error = useFieldError();
  const { datasets, items, options } = useDatasetOptions();
  const chosen = items.find(({ id }) => id === dataset_id);

  async function send(files: File[]) {
    const [first] = await sendDatasets(files.slice(0, 1));
    if (!first) return;
    // Whoever has just added a line for another dataset means that one.
    const empty = getValues("mix").findIndex((each) => each.dataset_id === "");
    setValue(getValues("dataset_id") !== "" && empty >= 0 ? `mix.${empty}.dataset_id` : "dataset_id", first.id, { shouldDirty: true, shouldValidate: true });
  }

  return (
    <div className="grid min-w-0 gap-2">
      <Field label="Dataset" note={<ChooseFiles text="Upload a file" variant="ghost" size="label" onChoose={(files) => void send(files)} />} error={error("dataset_id")} help={chosen && <DataFacts dataset={chosen} />}>
        {(control) => <Select value={dataset_id} options={options} {...register("dataset_id")} {...control} />}
      </Field>
      <LoadFailure query={datasets} />
      {chosen && (chosen.status === "inspecting" || chosen.status === "fetching") && <ProgressBar value={chosen.progress} label={`Progress of ${chosen.name}`} />}
      {chosen?.status === "failed" && <Notice tone="bad">{chosen.problem}</Notice>}
    </div>
  );
}

function useDatasetOptions() {
  const datasets = useQuery(datasetsQuery(LISTED));
  const items = datasets.data?.items ?? [];
  const options = [["", "Choose a dataset…"] as const, ...items.map((dataset) => [dataset.id, `${dataset.name}${datasetStateText(dataset)}`] as const)];
  return { datasets, items, options };
}

/** Data besides the dataset that is trained on: a validation dataset, and datasets that are mixed in. */
export function MoreData() {
  const { register } = useFormContext<JobFormValues>();
  const [eval_dataset_id, mix] = useWatch<JobFormValues, ["eval_dataset_id", "mix"]>({ name: ["eval_dataset_id", "mix"] });
  const error = useFieldError();
  const { items, options } = useDatasetOptions();
  const wrong = error("eval_dataset_id") !== undefined || mix.some((_, index) => error(`mix.${index}.dataset_id`) ?? error(`mix.${index}.weight`));
  // A job that is started again like another shows what it was given.
  const [open, setOpen] = useState(eval_dataset_id !== "" || mix.length > 0);
  const validation = items.find(({ id }) => id === eval_dataset_id)?.name;
  const summary = [validation ? `validates on ${validation}` : "holds out a part for validation", mix.length > 0 && `${counted(mix.length, "dataset")} mixed in`].filter(Boolean).join(" · ");
  return (
    <Accordion title="Validation and more datasets" summary={summary} open={open || wrong} onToggle={setOpen}>
      <div className="grid items-start gap-3.5 sm:grid-cols-2">
        <Field label="Validation dataset" optional error={error("eval_dataset_id")} help={eval_dataset_id ? undefined : "Without one, a part of the dataset is held out."}>
          {(control) => <Select value={eval_dataset_id} options={[["", "Hold out a part"], ...options.slice(1)]} {...register("eval_dataset_id")} {...control} />}
        </Field>
        <div className="grid gap-2.5">
          <MixFields options={options} />
        </div>
      </div>
    </Accordion>
  );
}

const [WEIGHT] = CONFIG_GROUPS.mix;
const WEIGHT_HELP = "How often an epoch trains each example: 2 trains them twice, 0.5 trains half of them.";

/** More datasets that are trained together with the first, each with a weight. */
function MixFields({ options }: { options: readonly (readonly [string, string])[] }) {
  const { register, setValue } = useFormContext<JobFormValues>();
  const { fields, append, remove } = useFieldArray<JobFormValues, "mix">({ name: "mix" });
  const mix = useWatch<JobFormValues, "mix">({ name: "mix" });
  const error = useFieldError();

  function drop(index: number) {
    remove(index);
    // A weight compares datasets: alone it would only change the length of an epoch.
    if (fields.length === 1) setValue(`config.${WEIGHT.path}` as keyof JobFormValues, "");
  }

  return (
    <>
      {fields.length > 0 && <OneField field={WEIGHT} help={WEIGHT_HELP} />}
      {fields.map(({ id }, index) => (
        <fieldset key={id} aria-label={`Mixed dataset ${index + 1}`} className="grid grid-cols-[1fr_5rem_auto] items-start gap-2">
          <Field label={`Dataset ${index + 2}`} error={error(`mix.${index}.dataset_id`)}>
            {(control) => <Select value={mix[index]?.dataset_id ?? ""} options={options} {...register(`mix.${index}.dataset_id`)} {...control} />}
          </Field>
          <Field label="Weight" error={error(`mix.${index}.weight`)}>
            {(control) => <Input inputMode="decimal" autoComplete="off" placeholder="1" {...register(`mix.${index}.weight`)} {...control} />}
          </Field>
          <Button variant="ghost" size="icon" className="mt-5.5" aria-label={`Remove dataset ${index + 2}`} onClick={() => drop(index)}>
            <X aria-hidden />
          </Button>
        </fieldset>
      ))}
      <Button variant="outline" size="small" className="justify-self-start sm:mt-6" disabled={fields.length >= NewJob.mix.maxItems} onClick={() => append({ dataset_id: "", weight: "" })}>
        <Plus aria-hidden />
        Mix in another dataset
      </Button>
    </>
  );
}

function datasetStateText({ status, report }: Dataset): string {
  if (status === "ready") return report?.mapping ? "" : ", format unknown";
  return { uploading: ", uploading", fetching: ", downloading", parsing: ", reading documents", generating: ", writing questions", inspecting: ", inspecting", failed: ", failed" }[status];
}

function DataFacts({ dataset: { id, report } }: { dataset: Dataset }) {
  const facts = report?.mapping
    ? [
        FORMAT_NAMES[report.mapping.format],
        counted(report.examples, "example"),
        report.lengths && `${countText(report.lengths.total)} ${report.lengths.unit}`,
        report.problems.rows_refused > 0 && `${counted(report.problems.rows_refused, "row")} skipped`,
      ].filter(Boolean)
    : [];
  return (
    <>
      {facts.join(" · ")}
      {facts.length > 0 && " · "}
      <Link to="/datasets/$datasetId" params={{ datasetId: id }} className="text-violet-soft underline underline-offset-2">
        view dataset
      </Link>
    </>
  );
}
