import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { readPlan } from "@/api/job-summary";
import { planQuery } from "@/api/jobs";
import type { PlanRequest } from "@/api/types";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { Loaded } from "@/components/loaded";
import { Skeleton } from "@/components/skeleton";
import { Facts } from "@/pages/jobs/facts";
import { MemoryBars } from "@/pages/jobs/memory-bars";
import { durationText } from "@/text/duration";
import { countText, parametersText } from "@/text/numbers";

const PAUSE = 400;

/** The plan for what is in the form, once the typing pauses. */
export function usePlan(request: PlanRequest) {
  const wanted = JSON.stringify(request);
  const [settled, setSettled] = useState(wanted);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(wanted), PAUSE);
    return () => clearTimeout(timer);
  }, [wanted]);
  const answer = useQuery({ ...planQuery(JSON.parse(settled) as PlanRequest), placeholderData: keepPreviousData });
  return { answer, behind: settled !== wanted || answer.isPlaceholderData };
}

type PlanCardProps = { planned: ReturnType<typeof usePlan> };

export function PlanCard({ planned: { answer, behind } }: PlanCardProps) {
  return (
    <Card aria-label="Plan" className="lg:sticky lg:top-5">
      <Loaded query={answer} skeleton={<PlanSkeleton />}>
        {({ fits, reason, plan: raw, machine }) => {
          const plan = readPlan(raw);
          return (
            <div aria-live="polite" className={cn("transition-opacity duration-150", behind && "opacity-60")}>
              <h2 className="flex items-center gap-2.5 text-lg font-[600]">
                <span aria-hidden className={cn("size-2.25 rounded-full", fits ? "bg-success shadow-[0_0_0_4px_rgb(16_185_129/0.18)]" : "bg-danger shadow-[0_0_0_4px_rgb(239_68_68/0.18)]")} />
                {fits ? "It fits" : "It cannot run like this"}
              </h2>
              <p className={cn("mt-0.5 break-words", fits ? "text-xs text-faint" : "text-dim")}>{fits ? `On ${machine ?? "this server"}. ${plan?.placementText ?? ""}` : reason}</p>
              {plan && (
                <div className="mt-4 grid gap-4">
                  <MemoryBars plan={plan} />
                  <Facts facts={factsOf(plan)} />
                  <p className="text-xs text-faint">
                    {plan.precisionReason}.{plan.assumptions.length > 0 && ` Assumes ${plan.assumptions.join("; ")}.`}
                  </p>
                </div>
              )}
            </div>
          );
        }}
      </Loaded>
    </Card>
  );
}

function factsOf(plan: NonNullable<ReturnType<typeof readPlan>>): [string, string][] {
  const facts: [string, string][] = [];
  if (plan.parameters !== null) facts.push(["Parameters", parametersText(plan.parameters)]);
  if (plan.tokensPerSecond !== null) facts.push(["Tokens per second", `about ${countText(plan.tokensPerSecond)}`]);
  if (plan.tokensPerStep !== null) facts.push(["Tokens per step", countText(plan.tokensPerStep)]);
  facts.push(["Steps", plan.steps === null ? "known once it starts" : countText(plan.steps)]);
  if (plan.seconds !== null) facts.push(["Time", `about ${durationText(plan.seconds)}`]);
  facts.push(["Precision", plan.precision]);
  return facts;
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
