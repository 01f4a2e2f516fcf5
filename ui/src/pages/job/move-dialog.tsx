/** The dialog that moves a job to another machine, and what the job needs there. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { progressOf } from "@/api/summary";
import { checkpointsQuery, moveJob, scriptQuery } from "@/api/jobs";
import { memoriesOf } from "@/api/plan";
import { sentenceOf } from "@/api/problem";
import { type Requirements, requirementsQuery } from "@/api/scripts";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Notice } from "@/components/notice";
import { toast } from "@/components/toasts";
import { missingConnection } from "@/pages/offers/offer-selection";
import { type KnownNeeds, RentalFields, useRentalForm, written } from "@/pages/offers/rental-form";
import { startText, stepsOf } from "./resume-words";

const GIB = 2 ** 30;
const HOUR = 3600;
/** A rented machine always has a GPU, so a script without one accepts any. */
const LEAST_GB = 1;

const left = (hours: number, job: Pick<Job, "summary" | "status">) => Math.max(0.01, Number((hours * (1 - (progressOf({ status: job.status, ...job.summary }) ?? 0))).toPrecision(2)));

/** Of a training from its plan, of a script from what is found in it; hours are those that are left. */
export function moveNeeds(job: Pick<Job, "plan" | "offer" | "summary" | "status">, requirements: Requirements | undefined): KnownNeeds {
  const { plan } = job;
  if (plan !== null) {
    const [memory] = memoriesOf(plan);
    return { memoryGb: memory ? Math.ceil((memory.total / GIB) * 10) / 10 : null, hours: plan.seconds === null ? null : left(plan.seconds / HOUR, job) };
  }
  if (requirements) return { memoryGb: Math.max(LEAST_GB, requirements.gpu_memory_gb.value), hours: left(requirements.duration_hours.value, job) };
  return { memoryGb: job.offer?.memory_gb ?? null, hours: null };
}

function useMoveNeeds(job: Job): KnownNeeds {
  const script = useQuery({ ...scriptQuery(job.id), enabled: job.kind === "script" });
  const request = script.data ? { script: script.data.script, files: {}, arguments: job.task?.kind === "script" ? job.task.arguments : [] } : null;
  const requirements = useQuery(requirementsQuery(request));
  return moveNeeds(job, requirements.data);
}

export function MoveDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const saved = useQuery(checkpointsQuery(job.id));
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title="Move to another machine"
      description={`The job keeps its name, charts and history. ${saved.data ? startText(job, stepsOf(saved.data.items)) : ""}`.trim()}
      className="max-w-2xl"
    >
      <MoveForm job={job} onClose={onClose} />
    </Dialog>
  );
}

function MoveForm({ job, onClose }: { job: Job; onClose: () => void }) {
  const rental = useRentalForm(useMoveNeeds(job), { budget: written(job.budget), max_hours: written(job.max_hours) });
  const [failure, setFailure] = useState<string | null>(null);
  const [pending, setPending] = useState(false);

  async function move() {
    if (rental.wrong) return;
    const missing = missingConnection(rental.selection);
    if (missing) return setFailure(missing);
    setPending(true);
    setFailure(null);
    try {
      await moveJob(job.id, rental.choice);
      toast("The job is queued for the selected machine.");
      onClose();
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }

  return (
    <form
      noValidate
      aria-label="Move to another machine"
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        void move();
      }}
    >
      {failure && (
        <Notice tone="bad" role="alert">
          {failure}
        </Notice>
      )}
      <RentalFields rental={rental} hoursLabel="Remaining hours" />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={pending}>
          Move job
        </Button>
      </div>
    </form>
  );
}
