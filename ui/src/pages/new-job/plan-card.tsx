/** The plan of a job: whether it fits, memory, the timeline of a step, and the settings that would fit. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { planQuery } from "@/api/jobs";
import { memoriesOf } from "@/api/plan";
import type { MachinePlan, NearestFit, Phase, Plan, PlanAnswer, PlanRequest } from "@/api/types";
import { Accordion, isWide } from "@/components/accordion";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { Facts } from "@/components/figures";
import { useDebounced } from "@/components/input";
import { Loaded, Skeleton, Updating } from "@/components/loaded";
import { MemoryBars } from "@/pages/jobs/memory-bars";
import { SpeedupNote } from "@/pages/jobs/speedup-note";
import { aboutText, bytesText, counted, countText, durationText, parametersText, secondsText } from "@/text/numbers";
import { FitList, MemoryShortage } from "./plan-shortage";

const PAUSE = 400;

/** The plan for what is in the form, once the typing pauses. */
export function usePlan(request: PlanRequest, complete: boolean) {
  const wanted = JSON.stringify(request);
  const settled = useDebounced(wanted, PAUSE);
  const answer = useQuery({ ...planQuery(JSON.parse(settled) as PlanRequest), placeholderData: keepPreviousData, enabled: complete });
  return { answer, behind: settled !== wanted || answer.isPlaceholderData };
}

type PlanCardProps = {
  planned: ReturnType<typeof usePlan>;
  /** What has to be filled in before there can be a plan. */
  missing: string | null;
  /** Takes up settings that fit. */
  onTake: (fit: NearestFit) => void;
};

export function PlanCard({ planned: { answer, behind }, missing, onTake }: PlanCardProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  const take = (fit: NearestFit) => {
    onTake(fit);
    // The button goes away with what it mended.
    heading.current?.focus();
  };
  if (missing !== null) {
    return (
      <Card aria-label="Plan">
        <h2 className="text-lg font-[600]">Plan</h2>
        <p aria-live="polite" className="mt-0.5 text-dim">
          {missing} Then the plan appears here.
        </p>
      </Card>
    );
  }
  return (
    <Card aria-label="Plan">
      <Loaded query={answer} skeleton={<PlanSkeleton />}>
        {(loaded) => (
          <Updating pending={behind} aria-live="polite">
            <h2 ref={heading} tabIndex={-1} className="flex items-center gap-2.5 text-lg font-[600] focus:outline-none">
              <span aria-hidden className={cn("size-2.25 shrink-0 rounded-full", loaded.fits ? "bg-success ring-4 ring-success/18" : "bg-danger ring-4 ring-danger/18")} />
              {loaded.fits ? "This job fits" : "This job cannot run with these settings"}
            </h2>
            {loaded.fits ? <Fitting answer={loaded} /> : <NotFitting answer={loaded} pending={behind} onTake={take} />}
          </Updating>
        )}
      </Loaded>
    </Card>
  );
}

function Fitting({ answer }: { answer: PlanAnswer }) {
  const { plan } = answer;
  return (
    <>
      <p className="mt-0.5 text-xs wrap-anywhere text-faint">
        On {answer.machine ?? "this server"}. {plan?.placement_text}
      </p>
      {plan && <PlanFigures plan={plan} />}
    </>
  );
}

type NotFittingProps = { answer: PlanAnswer; pending: boolean; onTake: (fit: NearestFit) => void };

function NotFitting({ answer: { reason, needs, options, requested_machine }, pending, onTake }: NotFittingProps) {
  return (
    <>
      <p className="mt-0.5 wrap-anywhere text-dim">{reason}</p>
      {needs && <MemoryShortage needs={needs} />}
      <FitList options={options} pending={pending} onTake={onTake} />
      {requested_machine && <RequestedMachine plan={requested_machine} pending={pending} onTake={onTake} />}
    </>
  );
}

/** The plan where only memory counts: on a machine that is not connected, or with data that is not here. */
function RequestedMachine({ plan: { machine, plan, reason, needs, options }, pending, onTake }: { plan: MachinePlan; pending: boolean; onTake: (fit: NearestFit) => void }) {
  return (
    <div className="mt-4 border-t border-line pt-3">
      <h3 className="flex items-center gap-2 font-[580]">
        <span aria-hidden className={cn("size-2 shrink-0 rounded-full", plan ? "bg-success" : "bg-warning")} />
        {plan ? `The model fits on ${machine}` : `The model does not fit on ${machine}`}
      </h3>
      {plan ? (
        <>
          <p className="mt-0.5 text-xs wrap-anywhere text-faint">{plan.placement_text}</p>
          <PlanFigures plan={plan} />
        </>
      ) : (
        <>
          <p className="mt-0.5 wrap-anywhere text-dim">{reason}</p>
          {needs && <MemoryShortage needs={needs} />}
          <FitList options={options} pending={pending} onTake={onTake} />
        </>
      )}
    </div>
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

/** What a plan predicts: memory, a step, what limits it, and the figures that follow. */
function PlanFigures({ plan }: { plan: Plan }) {
  const [open, setOpen] = useState(isWide);
  return (
    <Accordion title="Memory, speed and steps" summary={open ? undefined : closedText(plan)} open={open} onToggle={setOpen} className="mt-3">
      <div className="grid gap-4">
      <MemoryBars memories={memoriesOf(plan)} />
      <StepTimeline plan={plan} />
      {plan.limited_by && (
        <p className="text-xs text-dim">
          <span className="font-[560] text-text">The step time is limited by {plan.limited_by}.</span> {plan.limits.join(" ")}
        </p>
      )}
      <Facts facts={factsOf(plan)} />
      <SpeedupNote plan={plan} />
      <p className="text-xs text-faint">
        {plan.precision_reason}.{plan.assumptions.length > 0 && ` Assumes ${plan.assumptions.join("; ")}.`}
      </p>
      </div>
    </Accordion>
  );
}

function closedText(plan: Plan): string {
  const [memory] = memoriesOf(plan);
  const facts = [memory && `${bytesText(memory.total)} of ${bytesText(memory.limit)}`, plan.seconds !== null && aboutText(durationText(plan.seconds)), plan.steps !== null && counted(plan.steps, "step")];
  return facts.filter(Boolean).join(" · ");
}

function factsOf(plan: Plan): [string, string][] {
  const facts: [string, string][] = [];
  facts.push(["Tokens per second", `about ${countText(plan.tokens_per_second)}`]);
  if (plan.seconds !== null) facts.push(["Time", aboutText(durationText(plan.seconds))]);
  facts.push(["Steps", plan.steps === null ? "known after the start" : countText(plan.steps)]);
  facts.push(["Tokens per step", countText(plan.tokens_per_step)]);
  facts.push(["Parameters", parametersText(plan.parameters)]);
  if (plan.trained_parameters !== 0 && plan.trained_parameters !== plan.parameters) facts.push(["Trainable parameters", parametersText(plan.trained_parameters)]);
  facts.push(["Precision", plan.precision]);
  return facts;
}

type Lane = { key: "compute" | "link" | "host"; name: string; colour: string };

const MIN_LABEL_WIDTH = 0.16;

/** A step from left to right: how long its phases last, and which parts of the machine are busy in them. */
function StepTimeline({ plan }: { plan: Plan }) {
  const { phases, step_seconds } = plan;
  if (phases.length === 0 || step_seconds === null) return null;
  const lanes = lanesOf(plan);
  const share = (phase: Phase) => phase.seconds / step_seconds;
  return (
    <div>
      <div className="mb-1.5 flex justify-between gap-3 text-xs text-dim">
        Step time
        <span className="font-[520] text-text tabular-nums">{secondsText(step_seconds)}</span>
      </div>
      <div role="img" aria-label={describePhases(phases, lanes)} className="grid grid-cols-[2.25rem_minmax(0,1fr)] gap-y-1 text-2xs text-faint">
        <span />
        <div className="flex">
          {phases.map((phase) => (
            <span key={phase.name} title={`${phase.name} ${secondsText(phase.seconds)}`} className="min-w-0 truncate border-l border-line-strong pl-1 first:border-l-0 first:pl-0" style={{ width: `${share(phase) * 100}%` }}>
              {share(phase) >= MIN_LABEL_WIDTH && phase.name}
            </span>
          ))}
        </div>
        {lanes.map((lane) => (
          <LaneRow key={lane.key} lane={lane} phases={phases} share={share} />
        ))}
      </div>
    </div>
  );
}

function LaneRow({ lane, phases, share }: { lane: Lane; phases: readonly Phase[]; share: (phase: Phase) => number }) {
  return (
    <>
      <span className="leading-3">{lane.name}</span>
      <div className="flex h-3 overflow-hidden rounded-sm bg-white/6">
        {phases.map((phase) => (
          <div key={phase.name} className="h-full border-l border-line-strong first:border-l-0" style={{ width: `${share(phase) * 100}%` }}>
            <div className="h-full rounded-r-xs" style={{ width: `${busy(phase, lane) * 100}%`, background: lane.colour }} />
          </div>
        ))}
      </div>
    </>
  );
}

const busy = (phase: Phase, { key }: Lane) => (phase.seconds > 0 ? Math.min(1, phase[key] / phase.seconds) : 0);

/** The parts of the machine that have something to do; a model that stays on its device needs no link. */
function lanesOf({ device, phases }: Plan): Lane[] {
  const lanes: Lane[] = [
    { key: "compute", name: device === "cpu" ? "CPU" : "GPU", colour: "var(--color-teal)" },
    { key: "link", name: "link", colour: "var(--color-warning)" },
    { key: "host", name: "host", colour: "var(--color-primary-soft)" },
  ];
  return lanes.filter((lane) => phases.some((phase) => phase[lane.key] > 0));
}

function describePhases(phases: readonly Phase[], lanes: readonly Lane[]): string {
  return phases
    .map((phase) => {
      const parts = lanes.filter((lane) => phase[lane.key] > 0).map((lane) => `${lane.name} ${secondsText(phase[lane.key])}`);
      return `${phase.name} ${secondsText(phase.seconds)}${parts.length > 0 ? `, busy: ${parts.join(", ")}` : ""}.`;
    })
    .join(" ");
}
