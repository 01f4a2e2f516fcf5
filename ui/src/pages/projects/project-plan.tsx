/** What the model of a project takes: on this server, or on the machine that it needs. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { planQuery } from "@/api/jobs";
import { memoriesOf } from "@/api/plan";
import type { Plan, PlanAnswer, Project } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/components/figures";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { MemoryBars } from "@/pages/jobs/memory-bars";
import { fitText, MemoryShortage } from "@/pages/new-job/plan-shortage";
import { countText, parametersText } from "@/text/numbers";

export function ProjectPlanCard({ project }: { project: Project }) {
  const answer = useQuery(planQuery({ project_id: project.id, config: {} }));
  return (
    <Card aria-label="Plan">
      <CardHeader title="Plan" note="with recommended settings" />
      <Loaded query={answer} skeleton={<SkeletonRows rows={3} />}>
        {(loaded) => <PlanSummary project={project} answer={loaded} />}
      </Loaded>
    </Card>
  );
}

function PlanSummary({ project, answer }: { project: Project; answer: PlanAnswer }) {
  const { plan, needs, options, machine, reason } = answer.requested_machine ? { ...answer.requested_machine, reason: answer.requested_machine.reason ?? answer.reason } : answer;
  return (
    <div className="text-sm">
      <p className="font-[560]">{plan ? `Fits on ${machine ?? "this server"}` : "Does not fit on this server"}</p>
      {(!plan || answer.requested_machine) && <p className="mt-0.5 wrap-anywhere text-dim">{reason}</p>}
      {plan && <FittingFigures plan={plan} />}
      {needs && <MemoryShortage needs={needs} />}
      {!plan && options.length > 0 && (
        <>
          <h3 className="mt-4 mb-1.5 text-xs text-dim">Settings that would fit</h3>
          <ul className="grid gap-1.5">
            {options.map((fit) => (
              <li key={fit.title}>
                <span className="block font-[540] wrap-anywhere">{fit.title}</span>
                <span className="block text-xs text-dim">{fitText(fit)}</span>
              </li>
            ))}
          </ul>
          <Button asChild className="mt-3 w-full">
            <Link to="/projects/$projectId/jobs/new" params={{ projectId: project.id }}>
              Choose in the job form
            </Link>
          </Button>
        </>
      )}
    </div>
  );
}

function FittingFigures({ plan }: { plan: Plan }) {
  return (
    <div className="mt-3 grid gap-4">
      <MemoryBars memories={memoriesOf(plan)} />
      <Facts
        facts={[
          ["Parameters", parametersText(plan.parameters)],
          ["Tokens per second", `about ${countText(plan.tokens_per_second)}`],
        ]}
      />
    </div>
  );
}
