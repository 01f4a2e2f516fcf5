import { useState } from "react";
import { moveJob } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Notice } from "@/components/notice";
import { toast } from "@/components/toasts";
import { RentalFields } from "@/pages/offers/rental-fields";
import { missingConnection } from "@/pages/offers/use-offer-selection";
import { useRentalForm, written } from "@/pages/offers/use-rental-form";
import { useMoveNeeds } from "./move-needs";

export function MoveDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title="Go on elsewhere"
      description="It goes on from its newest checkpoint, with the same name, charts and history."
      className="max-w-2xl"
    >
      <MoveForm job={job} onClose={onClose} />
    </Dialog>
  );
}

function MoveForm({ job, onClose }: { job: Job; onClose: () => void }) {
  const rental = useRentalForm(useMoveNeeds(job), { budget: written(job.budget), maxHours: written(job.maxHours) });
  const [failure, setFailure] = useState<string | null>(null);
  const [pending, setPending] = useState(false);

  async function move() {
    if (rental.wrong) return;
    const missing = missingConnection(rental.selection);
    if (missing) return setFailure(missing);
    setPending(true);
    setFailure(null);
    try {
      await moveJob(job.id, rental.taken);
      toast("The job is queued and goes on there.");
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
      aria-label="Go on elsewhere"
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
      <RentalFields rental={rental} hoursLabel="Hours that are left" />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={pending}>
          Go on there
        </Button>
      </div>
    </form>
  );
}
