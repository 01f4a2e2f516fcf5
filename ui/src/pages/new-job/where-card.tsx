import { useQuery } from "@tanstack/react-query";
import { useFormContext, useWatch } from "react-hook-form";
import { machinesQuery } from "@/api/jobs";
import type { PlanAnswer } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { type JobFormValues, OTHER_GPU } from "@/forms/job-rules";
import { SelectField, TextField } from "@/forms/text-field";
import { bytesText } from "@/text/numbers";
import { useFieldError } from "./config-fields";
import { RentAccordion, type RentalChoice } from "./rent-accordion";

type WhereCardProps = { answer: PlanAnswer | undefined; onTake: (taken: RentalChoice | null) => void };

/** The device and the memory the job asks for, or a machine that is rented for it. */
export function WhereCard(rent: WhereCardProps) {
  const machines = useQuery(machinesQuery);
  const { register } = useFormContext<JobFormValues>();
  const gpu = useWatch<JobFormValues, "gpu">({ name: "gpu" });
  const error = useFieldError();
  const items = machines.data?.items ?? [];
  const gpus = [...new Set(items.flatMap((machine) => machine.gpus))];
  const options = [
    ["", gpus.length > 0 ? "Automatic" : "Automatic: the CPU"] as const,
    ...gpus.map((name) => [name, name] as const),
    [OTHER_GPU, "Another GPU…"] as const,
  ];
  const largest = Math.max(0, ...items.map((machine) => machine.hostMemoryBytes));
  return (
    <Card>
      <CardHeader title="Where to run" note={machines.data && items.length === 0 ? "no worker is running: the job will wait" : items.map((machine) => machine.name).join(", ")} />
      <div className="grid gap-3.5 sm:grid-cols-2">
        <SelectField label="GPU type" options={options} registration={register("gpu")} error={error("gpu")} />
        {gpu === OTHER_GPU && (
          <TextField label="Name of the GPU" placeholder="H200" autoComplete="off" registration={register("otherGpu")} error={error("otherGpu")} help="The job is refused where there is none; it never runs on something else instead." />
        )}
        <TextField
          label="Host memory, in GB"
          optional
          inputMode="numeric"
          autoComplete="off"
          placeholder="as much as it needs"
          registration={register("hostMemory")}
          error={error("hostMemory")}
          help={largest > 0 ? `The largest machine here has ${bytesText(largest)}.` : undefined}
        />
      </div>
      <RentAccordion {...rent} />
    </Card>
  );
}
