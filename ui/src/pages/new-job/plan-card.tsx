import { useRef } from "react";
import { readPlan } from "@/api/plan";
import type { PlanAnswer } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { Loaded } from "@/components/loaded";
import { Skeleton } from "@/components/skeleton";
import { Updating } from "@/components/updating";
import type { Json } from "@/forms/job-fields";
import { Facts } from "@/pages/jobs/facts";
import { changeFacts } from "./change-facts";
import { PlanFigures } from "./plan-figures";
import type { usePlan } from "./use-plan";

type PlanCardProps = {
  planned: ReturnType<typeof usePlan>;
  /** What has to be filled in before there can be a plan. */
  missing: string | null;
  /** Takes up the nearest setting that fits. */
  onTake: (changes: Json) => void;
};

export function PlanCard({ planned: { answer, behind }, missing, onTake }: PlanCardProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  const take = (changes: Json) => {
    onTake(changes);
    // The button goes away with what it mended.
    heading.current?.focus();
  };
  if (missing !== null) {
    return (
      <Card aria-label="Plan" className="lg:sticky lg:top-5">
        <h2 className="text-lg font-[600]">Plan</h2>
        <p aria-live="polite" className="mt-0.5 text-dim">
          {missing} The plan follows.
        </p>
      </Card>
    );
  }
  return (
    <Card aria-label="Plan" className="lg:sticky lg:top-5">
      <Loaded query={answer} skeleton={<PlanSkeleton />}>
        {(loaded) => (
          <Updating pending={behind} aria-live="polite">
            <h2 ref={heading} tabIndex={-1} className="flex items-center gap-2.5 text-lg font-[600] focus:outline-none">
              <span aria-hidden className={cn("size-2.25 rounded-full", loaded.fits ? "bg-success shadow-[0_0_0_4px_rgb(16_185_129/0.18)]" : "bg-danger shadow-[0_0_0_4px_rgb(239_68_68/0.18)]")} />
              {loaded.fits ? "It fits" : "It cannot run like this"}
            </h2>
            {loaded.fits ? <Fitting answer={loaded} /> : <NotFitting answer={loaded} pending={behind} onTake={take} />}
          </Updating>
        )}
      </Loaded>
    </Card>
  );
}

function Fitting({ answer }: { answer: PlanAnswer }) {
  const plan = readPlan(answer.plan);
  return (
    <>
      <p className="mt-0.5 text-xs break-words text-faint">
        On {answer.machine ?? "this server"}. {plan?.placementText}
      </p>
      {plan && <PlanFigures plan={plan} />}
    </>
  );
}

type NotFittingProps = { answer: PlanAnswer; pending: boolean; onTake: (changes: Json) => void };

function NotFitting({ answer: { reason, nearest }, pending, onTake }: NotFittingProps) {
  const plan = readPlan(nearest?.plan);
  return (
    <>
      <p className="mt-0.5 break-words text-dim">{reason}</p>
      {nearest && (
        <div className="mt-4 border-t border-line pt-3">
          <h3 className="mb-1.5 text-xs text-dim">What would fit</h3>
          <Facts facts={changeFacts(nearest.changes)} />
          <Button variant="primary" className="mt-3 w-full" disabled={pending} onClick={() => onTake(nearest.changes)}>
            Apply this change
          </Button>
          {plan && (
            <>
              <p className="mt-4 text-xs break-words text-faint">
                Then, on {nearest.machine}: {plan.placementText}
              </p>
              <PlanFigures plan={plan} />
            </>
          )}
        </div>
      )}
    </>
  );
}

function PlanSkeleton() {
  return (
    <div className="grid gap-3">
      <Skeleton className="h-6 w-28" />
      <Skeleton className="h-5" />
      <Skeleton className="h-24" />
    </div>
  );
}
