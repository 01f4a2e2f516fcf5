import type { Phase, Plan } from "@/api/plan";
import { secondsText } from "@/text/duration";

type Lane = { key: "compute" | "link" | "host"; name: string; colour: string };

const MIN_LABEL_WIDTH = 0.16;

/** A step from left to right: how long its phases last, and which parts of the machine are busy in them. */
export function StepTimeline({ plan }: { plan: Plan }) {
  const { phases, stepSeconds } = plan;
  if (phases.length === 0 || stepSeconds === null) return null;
  const lanes = lanesOf(plan);
  const share = (phase: Phase) => phase.seconds / stepSeconds;
  return (
    <div>
      <div className="mb-1.5 flex justify-between gap-3 text-xs text-dim">
        One step
        <span className="font-[520] text-text tabular-nums">{secondsText(stepSeconds)}</span>
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
export function lanesOf({ device, phases }: Plan): Lane[] {
  const lanes: Lane[] = [
    { key: "compute", name: device === "cpu" ? "CPU" : "GPU", colour: "#0694a2" },
    { key: "link", name: "link", colour: "#f2b84b" },
    { key: "host", name: "host", colour: "#7f9ef0" },
  ];
  return lanes.filter((lane) => phases.some((phase) => phase[lane.key] > 0));
}

export function describePhases(phases: readonly Phase[], lanes: readonly Lane[]): string {
  return phases
    .map((phase) => {
      const parts = lanes.filter((lane) => phase[lane.key] > 0).map((lane) => `${lane.name} ${secondsText(phase[lane.key])}`);
      return `${phase.name} ${secondsText(phase.seconds)}${parts.length > 0 ? `, busy: ${parts.join(", ")}` : ""}.`;
    })
    .join(" ");
}
