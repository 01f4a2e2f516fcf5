import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useFormContext, useWatch } from "react-hook-form";
import { addModel, catalogueQuery, modelsQuery } from "@/api/models";
import { sentenceOf } from "@/api/problem";
import type { CatalogueModel, Model } from "@/api/types";
import { Button } from "@/components/button";
import { GroupedSelect } from "@/components/grouped-select";
import { Notice } from "@/components/notice";
import { toastFailure } from "@/components/toasts";
import { Field } from "@/forms/field";
import { FROM_HUB } from "@/forms/finetune-rules";
import type { JobFormValues } from "@/forms/job-rules";
import { ProgressBar } from "@/pages/jobs/progress-bar";
import { AddModelButton } from "@/pages/models/add-model-dialog";
import { FindingsList } from "@/pages/models/findings-list";
import { useFieldError } from "@/pages/new-job/config-fields";
import { bytesText, countText, parametersText } from "@/text/numbers";

/** The model to begin with: one's own, or one of the catalogue that is fetched first. */
export function ModelChoice() {
  const { register, setValue } = useFormContext<JobFormValues>();
  const modelId = useWatch<JobFormValues, "modelId">({ name: "modelId" });
  const error = useFieldError();
  const models = useQuery(modelsQuery);
  const catalogue = useQuery(catalogueQuery);
  const own = models.data?.items ?? [];
  const listed = catalogue.data?.families.flatMap((family) => family.models) ?? [];
  const chosen = own.find(({ id }) => id === modelId);
  const wanted = listed.find(({ id }) => `${FROM_HUB}${id}` === modelId);
  const groups = [
    { title: "Yours", options: own.map((model) => [model.id, `${model.name}${stateText(model)}`] as const) },
    { title: "Catalogue, to be fetched", options: listed.filter(({ id }) => !own.some((model) => model.repository === id)).map(({ id, parameters }) => [`${FROM_HUB}${id}`, `${id} · ${parametersText(parameters)}`] as const) },
  ];
  const findings = chosen?.status === "ready" ? (chosen.check?.findings ?? []).filter(({ severity }) => severity !== "note") : [];
  const take = (model: Model) => setValue("modelId", model.id, { shouldDirty: true, shouldValidate: true });

  return (
    <div className="flex min-w-0 flex-col gap-2.5">
      <Field label="Model" error={error("modelId")} help={chosen?.status === "ready" ? modelFacts(chosen) : undefined}>
        {(control) => (
          // The list arrives after the form: without its value the browser would keep showing the first entry.
          <GroupedSelect value={modelId} {...register("modelId")} {...control} first={["", "Choose a model…"]} groups={groups} />
        )}
      </Field>
      {wanted && <FetchFirst model={wanted} onFetching={take} />}
      {chosen?.status === "fetching" && <ProgressBar value={chosen.progress} label={`Fetching ${chosen.name}`} />}
      {chosen?.status === "failed" && <Notice tone="bad">{chosen.problem}</Notice>}
      {findings.length > 0 && <FindingsList findings={findings} />}
      <div className="mt-auto">
        <AddModelButton variant="outline" onAdded={take} />
      </div>
    </div>
  );
}

const stateText = ({ status }: Model) => ({ ready: "", fetching: ", being fetched", uploading: ", being uploaded", failed: ", failed" })[status];

function modelFacts({ check, size }: Model): string {
  const facts = [
    check?.parameters && `${parametersText(check.parameters)} parameters`,
    check?.contextLength && `${countText(check.contextLength)} tokens of context`,
    check && (check.chatTemplate ? "chat template found" : "no chat template: a plain one is used"),
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
        Not on this server yet: about {bytesText(model.parameters * 2)} from the Hub, under {model.licence}.{model.gated && " Its terms have to be accepted there first."}
      </span>
      <Button variant="primary" pending={pending} onClick={() => void add()}>
        Fetch it
      </Button>
    </Notice>
  );
}
