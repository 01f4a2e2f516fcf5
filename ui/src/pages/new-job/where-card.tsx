/** Where a training job runs: a machine of this server, or a rented one. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useFormContext, useWatch } from "react-hook-form";
import { machinesQuery } from "@/api/jobs";
import { memoriesOf } from "@/api/plan";
import type { PlanAnswer } from "@/api/types";
import { Accordion } from "@/components/accordion";
import { Card, CardHeader } from "@/components/card";
import { SelectField, TextField } from "@/forms/field";
import { type JobFormValues, OTHER_GPU } from "@/forms/job-form";
import { type KnownNeeds, RentalFields, type RentalForm, useRentalForm } from "@/pages/offers/rental-form";
import { bytesText } from "@/text/numbers";
import { useFieldError } from "./config-fields";

type WhereCardProps = { answer: PlanAnswer | undefined; onTake: (choice: RentalChoice | null) => void };

/** The device and the memory the job asks for, or a machine that is rented for it. */
export function WhereCard(rent: WhereCardProps) {
  const machines = useQuery(machinesQuery);
  const { register } = useFormContext<JobFormValues>();
  const gpu = useWatch<JobFormValues, "gpu">({ name: "gpu" });
  const error = useFieldError();
  const items = machines.data?.items ?? [];
  const gpus = [...new Set(items.flatMap((machine) => machine.gpus))];
  const options = [
    ["", gpus.length > 0 ? "Automatic" : "Automatic (CPU)"] as const,
    // What was chosen stays in the list while its machine is away.
    ...[...new Set([...gpus, gpu])].filter((name) => name !== "" && name !== OTHER_GPU).map((name) => [name, name] as const),
    [OTHER_GPU, "Other GPU…"] as const,
  ];
  const largest = Math.max(0, ...items.map((machine) => machine.host_memory_bytes));
  return (
    <Card>
      <CardHeader title="Where to run" note={machines.data && items.length === 0 ? "no worker is running, so the job will wait" : items.map((machine) => machine.name).join(", ")} />
      <div className="mb-3.5 grid grid-cols-[4fr_3fr] items-end gap-3.5 sm:grid-cols-2 sm:items-start">
        <SelectField label="GPU type" value={gpu} options={options} registration={register("gpu")} error={error("gpu")} />
        {gpu === OTHER_GPU && (
          <TextField label="GPU name" placeholder="H200" autoComplete="off" registration={register("otherGpu")} error={error("otherGpu")} help="The job runs only on this GPU type. If no machine has it, the job is rejected." />
        )}
        <TextField
          label="Host memory (GB)"
          compact
          inputMode="numeric"
          autoComplete="off"
          placeholder="automatic"
          registration={register("host_memory")}
          error={error("host_memory")}
          help={`The job runs only on a machine with this much host memory. If empty: as much as the plan needs.${largest > 0 ? ` The largest machine connected to this server has ${bytesText(largest)}.` : ""}`}
        />
      </div>
      <RentAccordion {...rent} />
    </Card>
  );
}

/** Wrong: somebody wants to rent, but a limit or a need is no number. Such a job must not start anywhere. */
export type RentalChoice = RentalForm["choice"] | "wrong";

const GIB = 2 ** 30;
/** For every parameter and token: two forward, four back. */
const OPERATIONS = 6;

/** What a plan says of any machine: memory, and how much is computed. What it says of time holds for its own machine only. */
export function plannedNeeds(answer: PlanAnswer | undefined): KnownNeeds {
  const plan = answer?.plan ?? answer?.requested_machine?.plan ?? answer?.options[0]?.plan ?? answer?.requested_machine?.options[0]?.plan;
  if (!plan) return { memoryGb: null, hours: null };
  const [memory] = memoriesOf(plan);
  const { parameters, tokens_per_step: tokensPerStep, steps } = plan;
  return {
    memoryGb: memory ? Math.ceil((memory.total / GIB) * 10) / 10 : null,
    hours: null,
    operations: parameters && tokensPerStep && steps ? OPERATIONS * parameters * tokensPerStep * steps : null,
  };
}

type RentAccordionProps = { answer: PlanAnswer | undefined; onTake: (choice: RentalChoice | null) => void };

/** Rented machines, for those who ask for them; closed, the job runs on a machine of this server. */
export function RentAccordion(props: RentAccordionProps) {
  const [open, setOpen] = useState(false);
  // Once opened, it keeps what was typed when it is closed and opened again.
  const [opened, setOpened] = useState(false);
  const toggle = (now: boolean) => {
    setOpen(now);
    setOpened(opened || now);
  };
  return (
    <Accordion title="Rent an instance" summary={open ? "close this section to run on this server" : "runs on this server"} open={open} onToggle={toggle}>
      {opened && <Rent {...props} wanted={open} />}
    </Accordion>
  );
}

function Rent({ answer, onTake, wanted }: RentAccordionProps & { wanted: boolean }) {
  const rental = useRentalForm(plannedNeeds(answer), { preferLocal: true });
  const choice = wanted ? JSON.stringify(rental.wrong ? "wrong" : rental.choice) : null;
  useEffect(() => {
    onTake(choice === null ? null : (JSON.parse(choice) as RentalChoice));
    return () => onTake(null);
  }, [choice, onTake]);
  return (
    <div>
      <RentalFields rental={rental} fitsHere={answer?.fits} />
      {rental.choice.offer && <p className="mt-3 text-xs text-dim">The plan on this page is for a machine connected to this server, not for the rented instance. When the job starts, a new plan is made for the instance you chose. If the job does not fit on that instance, it is rejected.</p>}
    </div>
  );
}
