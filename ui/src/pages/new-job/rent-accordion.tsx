import { ChevronRight } from "lucide-react";
import { useEffect, useState } from "react";
import { readPlan } from "@/api/plan";
import type { PlanAnswer } from "@/api/types";
import { RentalFields } from "@/pages/offers/rental-fields";
import { type KnownNeeds, type RentalForm, useRentalForm } from "@/pages/offers/use-rental-form";

export type RentalChoice = RentalForm["taken"];

const GIB = 2 ** 30;
/** For every parameter and token: two forward, four back. */
const OPERATIONS = 6;

/** What a plan says of any machine: memory, and how much is computed. What it says of time holds for its own machine only. */
export function plannedNeeds(answer: PlanAnswer | undefined): KnownNeeds {
  const plan = readPlan(answer?.plan) ?? readPlan(answer?.nearest?.plan);
  if (plan === null) return { memoryGb: null, hours: null };
  const [memory] = plan.memories;
  const { parameters, tokensPerStep, steps } = plan;
  return {
    memoryGb: memory ? Math.ceil((memory.total / GIB) * 10) / 10 : null,
    hours: null,
    operations: parameters && tokensPerStep && steps ? OPERATIONS * parameters * tokensPerStep * steps : null,
  };
}

type RentAccordionProps = { answer: PlanAnswer | undefined; onTake: (taken: RentalChoice | null) => void };

/** Rented machines, for those who ask for them; closed, the job runs on a machine of this server. */
export function RentAccordion(props: RentAccordionProps) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)} className="group mt-4 border-t border-line pt-3">
      <summary className="flex cursor-pointer list-none items-center gap-1.5 text-xs text-dim hover:text-text">
        <ChevronRight aria-hidden className="size-3.5 shrink-0 transition-transform duration-150 group-open:rotate-90" />
        Rent a machine
        <span className="ml-auto text-right text-faint">{open ? "closed again, it runs here" : "runs here"}</span>
      </summary>
      {open && <Rent {...props} />}
    </details>
  );
}

function Rent({ answer, onTake }: RentAccordionProps) {
  const rental = useRentalForm(plannedNeeds(answer), { preferLocal: true });
  const taken = rental.wrong ? null : JSON.stringify(rental.taken);
  useEffect(() => {
    onTake(taken === null ? null : (JSON.parse(taken) as RentalChoice));
    return () => onTake(null);
  }, [taken, onTake]);
  return (
    <div className="mt-3">
      <RentalFields rental={rental} fitsHere={answer?.fits} />
      {rental.taken.offer && <p className="mt-3 text-xs text-dim">The plan beside is for a machine of this server. When the job starts, it is planned anew for the one you chose, and refused if it does not fit there.</p>}
    </div>
  );
}
