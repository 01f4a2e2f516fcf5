import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useFormContext, useWatch } from "react-hook-form";
import { datasetsQuery } from "@/api/datasets";
import type { Dataset } from "@/api/types";
import { Notice } from "@/components/notice";
import { Select } from "@/components/select";
import { Field } from "@/forms/field";
import type { JobFormValues } from "@/forms/job-rules";
import { ChooseFiles } from "@/pages/datasets/choose-files";
import { FORMAT_NAMES } from "@/pages/datasets/format-words";
import { ProgressBar } from "@/pages/jobs/progress-bar";
import { useFieldError } from "@/pages/new-job/config-fields";
import { countText, counted } from "@/text/numbers";
import { sendDatasets } from "@/uploads/dataset-files";

export const LISTED = { limit: 200 };

/** The examples to learn from: a dataset that is here, or a file that is sent from here. */
export function DataChoice() {
  const { register, setValue } = useFormContext<JobFormValues>();
  const datasetId = useWatch<JobFormValues, "datasetId">({ name: "datasetId" });
  const error = useFieldError();
  const datasets = useQuery(datasetsQuery(LISTED));
  const items = datasets.data?.items ?? [];
  const chosen = items.find(({ id }) => id === datasetId);
  const options = [["", "Choose a dataset…"] as const, ...items.map((dataset) => [dataset.id, `${dataset.name}${stateText(dataset)}`] as const)];

  async function send(files: File[]) {
    const [first] = await sendDatasets(files.slice(0, 1));
    if (first) setValue("datasetId", first.id, { shouldDirty: true, shouldValidate: true });
  }

  return (
    <div className="flex min-w-0 flex-col gap-2.5">
      <Field label="Dataset" error={error("datasetId")} help={chosen && <DataFacts dataset={chosen} />}>
        {(control) => <Select value={datasetId} options={options} {...register("datasetId")} {...control} />}
      </Field>
      {chosen && (chosen.status === "inspecting" || chosen.status === "fetching") && <ProgressBar value={chosen.progress} label={`Progress of ${chosen.name}`} />}
      {chosen?.status === "failed" && <Notice tone="bad">{chosen.problem}</Notice>}
      <div className="mt-auto">
        <ChooseFiles text="Upload a file" onChoose={(files) => void send(files)} />
      </div>
    </div>
  );
}

function stateText({ status, report }: Dataset): string {
  if (status === "ready") return report?.mapping ? "" : ", needs your help";
  return { uploading: ", being uploaded", fetching: ", being fetched", inspecting: ", being looked at", failed: ", failed" }[status];
}

function DataFacts({ dataset: { id, report } }: { dataset: Dataset }) {
  const facts = report?.mapping
    ? [
        FORMAT_NAMES[report.mapping.format],
        counted(report.examples, "example"),
        report.lengths && `${countText(report.lengths.total)} ${report.lengths.unit}`,
        report.problems.rowsRefused > 0 && `${counted(report.problems.rowsRefused, "row")} left out`,
      ].filter(Boolean)
    : [];
  return (
    <>
      {facts.join(" · ")}
      {facts.length > 0 && " · "}
      <Link to="/datasets/$datasetId" params={{ datasetId: id }} className="text-violet-soft underline underline-offset-2">
        look at it
      </Link>
    </>
  );
}
