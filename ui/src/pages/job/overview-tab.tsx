/** The first tab of a job: what is wrong, whether it improved, the curve, what it costs, what it printed last. */
import { Link } from "@tanstack/react-router";
import { useSyncExternalStore, type ReactNode } from "react";
import { useOutput } from "./output-card";
import { useFailure } from "@/api/client";
import { isResting } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import { number } from "@/api/summary";
import type { Job, TrainConfig } from "@/api/types";
import type { CurveStore } from "@/charts/curve-store";
import { Card, CardHeader } from "@/components/card";
import { cn } from "@/components/class-names";
import { Facts } from "@/components/figures";
import { choiceText } from "@/forms/job-fields";
import { SpeedupNote } from "@/pages/jobs/speedup-note";
import type { JobTab } from "@/shell/address";
import { groupLines, type LogPiece } from "@/text/log-groups";
import { countText, settingText } from "@/text/numbers";
import { ImprovementCard } from "./improvement-card";
import { CostCard, takenSeconds } from "./job-stats";
import { PlanCard } from "./memory-card";
import { ArtifactsCard } from "./result-cards";

/** To another tab of the same job. */
export function TabLink({ tab, children, className }: { tab: Exclude<JobTab, "overview">; children: ReactNode; className?: string }) {
  return (
    <Link to="." search={{ tab }} className={cn("text-sm text-violet-soft underline-offset-3 hover:underline", className)}>
      {children}
    </Link>
  );
}

type OverviewTabProps = { job: Job; store: CurveStore; charts: (aside: ReactNode) => ReactNode };

export function OverviewTab({ job, store, charts }: OverviewTabProps) {
  const evaluated = useSyncExternalStore(store.subscribe, () => store.curve("eval/loss") !== undefined);
  // A run that ended before its first step has trained nothing that could be better.
  const endedEarly = isResting(job.status) && job.summary.step === null;
  // A run from elsewhere has neither a plan nor a cost.
  const aside = job.kind === "run" && job.summary.cost === null ? null : (
    <div className="flex h-full flex-col gap-3.5">
      <CostCard job={job} />
      {job.kind === "script" ? <ArtifactsCard job={job} /> : <PlanCard job={job} store={store} />}
    </div>
  );
  return (
    <div className="grid gap-3.5">
      {(evaluated || (job.kind === "train" && !endedEarly)) && <ImprovementCard job={job} store={store} />}
      {charts(aside)}
      <div className="grid gap-3.5 lg:grid-cols-12">
        <LatestLines job={job} className={job.config ? "lg:col-span-7" : "lg:col-span-12"} />
        {job.config && <SettingsCard job={job} className="lg:col-span-5" />}
      </div>
      {job.plan && <SpeedupNote plan={job.plan} taken={job.status === "completed" ? takenSeconds(job) : null} />}
    </div>
  );
}

const LINES = 5;

function LatestLines({ job, className }: { job: Job; className?: string }) {
  const { lines, loaded, error } = useOutput(job.id, !isResting(job.status));
  const failure = useFailure(error);
  const pieces = groupLines(lines.slice(-60)).slice(-LINES);
  return (
    <Card className={className}>
      <CardHeader title="Latest log lines">
        <TabLink tab="logs">All logs</TabLink>
      </CardHeader>
      <div className="min-h-29 rounded-control border border-line bg-rail px-3 py-2 font-mono text-xs leading-[1.65] text-code">
        {pieces.length === 0 && <p className="text-dim">{failure ? sentenceOf(failure) : loaded ? "No output yet." : "Loading"}</p>}
        {pieces.map((piece, index) => (
          // Lines have no name of their own.
          // oxlint-disable-next-line react/no-array-index-key
          <p key={index} className={cn("truncate whitespace-pre", colourOf(piece))}>
            {piece.kind === "line" ? piece.text || " " : piece.title}
          </p>
        ))}
      </div>
    </Card>
  );
}

const colourOf = (piece: LogPiece) => (piece.kind === "traceback" || piece.wrong ? "text-danger-soft" : piece.warning ? "text-warning" : undefined);

/** The settings that people ask about first, in the words that they search for. */
function settingsFacts(job: Job): [string, string][] {
  const { config, settings, summary } = job;
  if (!config) return [];
  const facts: [string, string][] = [];
  const { lora, method, schedule, data } = config;
  facts.push(["Method", method === "full" ? choiceText("method", method) : `${choiceText("method", method)}: rank ${lora.rank}, alpha ${settingText(lora.alpha)}`]);
  const rate = settings.learning_rate ?? config.learning_rate;
  facts.push(["Learning rate", `${rate === null ? "default" : settingText(rate)}, cosine, ${warmupText(schedule)}`]);
  facts.push(["Batch size × gradient accumulation", `${config.batch_size} × ${config.accumulation} = ${countText(config.batch_size * config.accumulation)} rows`]);
  const length = config.model.context_length ?? number(summary.facts.context_length);
  if (length !== null) facts.push(["Max sequence length", `${countText(length)} tokens`]);
  if (data.kind === "examples") facts.push(["Packing", data.packing ? "on" : "off"]);
  const every = settings.eval_every_steps ?? config.eval.every_steps;
  const split = data.eval_path ? "a file of its own" : data.eval_fraction > 0 ? `${settingText(data.eval_fraction * 100)} %` : "none";
  facts.push(["Eval split", `${split}${every ? `, every ${countText(every)} steps` : ", every epoch"}`]);
  return facts;
}

const warmupText = ({ warmup_steps: steps, warmup_fraction: share }: TrainConfig["schedule"]) => (steps === null ? `${settingText(share * 100)} % warmup` : `${countText(steps)} warmup steps`);

function SettingsCard({ job, className }: { job: Job; className?: string }) {
  return (
    <Card className={className}>
      <CardHeader title="Settings">
        <TabLink tab="config">Config</TabLink>
      </CardHeader>
      <Facts facts={settingsFacts(job)} />
    </Card>
  );
}
