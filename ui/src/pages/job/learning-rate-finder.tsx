import { useQuery } from "@tanstack/react-query";
import { useMemo, useSyncExternalStore } from "react";
import { readSummary } from "@/api/job-summary";
import { isResting, jobQuery } from "@/api/jobs";
import { type FinderResult, readFinder } from "@/api/task-results";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { Skeleton } from "@/components/skeleton";
import type { CurveStore } from "@/curves/curve-store";
import { livePoints } from "@/curves/finder";
import { counted, settingText } from "@/text/numbers";
import { FinderChart } from "./finder-chart";
import { useJobLive } from "./use-job-live";

type LearningRateFinderProps = {
  /** A job of kind find_learning_rate. */
  jobId: string;
  /** Called with the suggestion when somebody takes it; without it the suggestion is only shown. */
  onUse?: (rate: number) => void;
};

/** Follows a learning-rate finder from its place in the queue to its suggestion. */
export function LearningRateFinder({ jobId, onUse }: LearningRateFinderProps) {
  const job = useQuery(jobQuery(jobId));
  return (
    <Loaded query={job} skeleton={<Skeleton className="h-52" />}>
      {(loaded) => <Finder job={loaded} onUse={onUse} />}
    </Loaded>
  );
}

function Finder({ job, onUse }: { job: Job; onUse?: (rate: number) => void }) {
  const { store } = useJobLive(job.id, job.status);
  const live = useLivePoints(store);
  const result = readFinder(job.result);
  const points = result?.points.length ? result.points : live;
  return (
    <div className="grid gap-3">
      <FinderChart points={points} suggested={result?.suggested ?? null} />
      <div role="status">{result ? <Suggestion result={result} onUse={onUse} /> : <Waiting job={job} />}</div>
    </div>
  );
}

function useLivePoints(store: CurveStore) {
  // A snapshot must stay the same while nothing changed, so it is a number and the points are made from it.
  const count = useSyncExternalStore(store.subscribe, () => store.curve("finder/loss")?.x.length ?? 0);
  return useMemo(() => (count === 0 ? [] : livePoints(store.curve("finder/learning_rate"), store.curve("finder/loss"))), [store, count]);
}

function Suggestion({ result: { suggested, reason, divergedAt }, onUse }: { result: FinderResult; onUse?: (rate: number) => void }) {
  if (suggested === null) {
    return <Notice tone="attention">{reason ?? "The sweep showed no rate at which the loss clearly falls. Try a wider range, or more steps."}</Notice>;
  }
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
      <div className="min-w-0 flex-1 basis-56">
        <p>
          <b className="font-[570]">Suggested learning rate: {settingText(suggested)}.</b> <span className="text-dim">{reason}</span>
        </p>
        {divergedAt !== null && <p className="text-xs text-dim">From {settingText(divergedAt)} on, training falls apart.</p>}
      </div>
      {onUse && (
        <Button variant="primary" onClick={() => onUse(suggested)}>
          Use this rate
        </Button>
      )}
    </div>
  );
}

function Waiting({ job }: { job: Job }) {
  if (job.status === "failed") return <Notice tone="bad">{job.errorMessage ?? "The sweep failed, and no reason was recorded."}</Notice>;
  if (isResting(job.status)) return <Notice>The sweep was stopped before it came to a suggestion.</Notice>;
  const { step, totalSteps } = readSummary(job);
  const text = job.status === "queued" ? "Waiting for a free device." : step === null ? "Loading the model and the data." : `Step ${step}${totalSteps === null ? "" : ` of ${counted(totalSteps, "step")}`}: the rate grows, and the loss is watched.`;
  return <p className="text-dim">{text}</p>;
}
