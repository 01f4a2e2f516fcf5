import type { Plan } from "@/api/plan";
import { Facts } from "@/pages/jobs/facts";
import { MemoryBars } from "@/pages/jobs/memory-bars";
import { StepTimeline } from "@/pages/jobs/step-timeline";
import { durationText } from "@/text/duration";
import { countText, parametersText } from "@/text/numbers";

/** What a plan predicts: memory, a step, what limits it, and the figures that follow. */
export function PlanFigures({ plan }: { plan: Plan }) {
  return (
    <div className="mt-4 grid gap-4">
      <MemoryBars memories={plan.memories} />
      <StepTimeline plan={plan} />
      {plan.limitedBy && (
        <p className="text-xs text-dim">
          <span className="font-[560] text-text">Limited by {plan.limitedBy}.</span> {plan.limits.join(" ")}
        </p>
      )}
      <Facts facts={factsOf(plan)} />
      <p className="text-xs text-faint">
        {plan.precisionReason}.{plan.assumptions.length > 0 && ` Assumes ${plan.assumptions.join("; ")}.`}
      </p>
    </div>
  );
}

function factsOf(plan: Plan): [string, string][] {
  const facts: [string, string][] = [];
  if (plan.tokensPerSecond !== null) facts.push(["Tokens per second", `about ${countText(plan.tokensPerSecond)}`]);
  if (plan.seconds !== null) facts.push(["Time", `about ${durationText(plan.seconds)}`]);
  facts.push(["Steps", plan.steps === null ? "known once it starts" : countText(plan.steps)]);
  if (plan.tokensPerStep !== null) facts.push(["Tokens per step", countText(plan.tokensPerStep)]);
  if (plan.parameters !== null) facts.push(["Parameters", parametersText(plan.parameters)]);
  if (plan.trainedParameters !== null && plan.trainedParameters !== plan.parameters) facts.push(["Trained", parametersText(plan.trainedParameters)]);
  facts.push(["Precision", plan.precision]);
  return facts;
}
