/** The learning-rate finder: its chart of loss over learning rate, in percent of the picture, and its suggestion. */
import { useQuery } from "@tanstack/react-query";
import { useMemo, useSyncExternalStore } from "react";
import { isResting, jobQuery } from "@/api/jobs";
import type { FinderResult, Job } from "@/api/types";
import type { CurveStore } from "@/charts/curve-store";
import { type CurvePoints, smooth } from "@/charts/plot-data";
import { Button } from "@/components/button";
import { Loaded, Skeleton } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { countText, metricText, settingText } from "@/text/numbers";
import { useJobLive } from "./use-job-live";

const LIVE_SMOOTHING = 0.7;

type FinderPoint = FinderResult["points"][number];

/** The points of a finder that is still at work, from the two curves that it reports. */
export function livePoints(rates: CurvePoints | undefined, losses: CurvePoints | undefined): FinderPoint[] {
  if (!rates || !losses) return [];
  const rateAt = new Map(rates.x.map((step, index) => [step, rates.value[index]]));
  const points = losses.x.flatMap((step, index) => {
    const [rate, loss] = [rateAt.get(step), losses.value[index]];
    return rate === undefined || loss === undefined || rate <= 0 ? [] : [{ learning_rate: rate, loss }];
  });
  const smoothed = smooth(points.map((point) => point.loss), LIVE_SMOOTHING);
  return points.map((point, index) => ({ ...point, smoothed: smoothed[index] ?? point.loss }));
}

type Frame = { left: number; right: number; low: number; high: number };

/**
 * Ends of both axes. At the end of a sweep the loss shoots up, which would press everything that matters
 * into a line at the bottom: the picture ends a little above where the loss began.
 */
export function frameOf(points: readonly FinderPoint[]): Frame | null {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return null;
  const values = points.map((point) => point.smoothed).filter(Number.isFinite);
  const low = Math.min(...values);
  const fall = first.smoothed - low;
  const high = fall > 0 ? Math.min(Math.max(...values), first.smoothed + fall * 0.6) : Math.max(...values);
  const padding = Math.max(high - low, Math.abs(low) * 0.01, 1e-6) * 0.08;
  const [left, right] = [Math.log10(first.learning_rate), Math.log10(last.learning_rate)];
  return { left, right: right > left ? right : left + 1, low: low - padding, high: high + padding };
}

export const across = ({ left, right }: Frame, rate: number) => ((Math.log10(rate) - left) / (right - left)) * 100;
export const down = ({ low, high }: Frame, loss: number) => (1 - (loss - low) / (high - low)) * 100;

/** What of the line lies inside the picture, as an SVG path; a piece above its top is left out. */
export function pathOf(points: readonly FinderPoint[], frame: Frame, read: (point: FinderPoint) => number): string {
  let pen = "M";
  let path = "";
  for (const point of points) {
    const y = down(frame, read(point));
    if (!Number.isFinite(y) || y < -60) {
      pen = "M";
      continue;
    }
    path += `${pen}${across(frame, point.learning_rate).toFixed(2)} ${y.toFixed(2)}`;
    pen = "L";
  }
  return path;
}

/** Powers of ten between the ends. */
export function decades({ left, right }: Frame): number[] {
  const ticks: number[] = [];
  for (let power = Math.ceil(left - 1e-9); power <= right + 1e-9; power += 1) ticks.push(10 ** power);
  return ticks;
}

type FinderChartProps = { points: readonly FinderPoint[]; suggested: number | null };

/** Loss over learning rate. Lines are stretched to the size of the card; labels lie on top and are not stretched. */
function FinderChart({ points, suggested }: FinderChartProps) {
  const frame = frameOf(points);
  if (frame === null) return <div className="h-52 rounded-control bg-white/3" />;
  const suggestedX = suggested === null ? null : across(frame, suggested);
  const nearest = suggested === null ? undefined : points.reduce((best, point) => (Math.abs(Math.log(point.learning_rate / suggested)) < Math.abs(Math.log(best.learning_rate / suggested)) ? point : best));
  return (
    <div role="img" aria-label={inWords(points, suggested)}>
      <div className="flex h-52 gap-2">
        <div aria-hidden className="flex w-9 flex-col justify-between text-right text-2xs text-faint tabular-nums">
          <span>{metricText(frame.high)}</span>
          <span>{metricText((frame.high + frame.low) / 2)}</span>
          <span>{metricText(frame.low)}</span>
        </div>
        <div aria-hidden className="relative min-w-0 grow overflow-hidden border-b border-line-strong">
          <svg viewBox="0 0 100 100" preserveAspectRatio="none" className="absolute inset-0 size-full overflow-hidden" fill="none">
            {decades(frame).map((rate) => (
              <line key={rate} x1={across(frame, rate)} x2={across(frame, rate)} y1="0" y2="100" className="stroke-line" vectorEffect="non-scaling-stroke" />
            ))}
            <path d={pathOf(points, frame, (point) => point.loss)} stroke="var(--color-violet-soft)" strokeOpacity="0.35" strokeWidth="1" vectorEffect="non-scaling-stroke" />
            <path d={pathOf(points, frame, (point) => point.smoothed)} stroke="var(--color-violet-soft)" strokeWidth="1.8" strokeLinejoin="round" vectorEffect="non-scaling-stroke" />
            {suggestedX !== null && <line x1={suggestedX} x2={suggestedX} y1="0" y2="100" stroke="var(--color-success-soft)" strokeDasharray="3 4" vectorEffect="non-scaling-stroke" />}
          </svg>
          {suggestedX !== null && nearest && (
            <span className="absolute size-2.5 -translate-1/2 rounded-full bg-success-soft ring-3 ring-success-soft/25" style={{ left: `${suggestedX}%`, top: `${down(frame, nearest.smoothed)}%` }} />
          )}
          {suggestedX !== null && suggested !== null && (
            <span className={`absolute top-1 text-2xs font-[540] whitespace-nowrap text-success-soft ${suggestedX > 60 ? "-translate-x-full pr-2" : "pl-2"}`} style={{ left: `${suggestedX}%` }}>
              suggested {settingText(suggested)}
            </span>
          )}
        </div>
      </div>
      <div aria-hidden className="relative mt-1 ml-11 h-4 text-2xs text-faint tabular-nums">
        {decades(frame).map((rate) => (
          <span key={rate} className="absolute -translate-x-1/2 whitespace-nowrap first:translate-x-0 last:-translate-x-full" style={{ left: `${across(frame, rate)}%` }}>
            {rate.toExponential(0).replace("e+0", "")}
          </span>
        ))}
      </div>
    </div>
  );
}

function inWords(points: readonly FinderPoint[], suggested: number | null): string {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return "Loss by learning rate. No values yet.";
  const lowest = points.reduce((best, point) => (point.smoothed < best.smoothed ? point : best));
  const advice = suggested === null ? "" : ` Suggested learning rate: ${settingText(suggested)}.`;
  return `Loss by learning rate, from ${settingText(first.learning_rate)} to ${settingText(last.learning_rate)}. The loss starts at ${metricText(first.smoothed)}. Its lowest value is ${metricText(lowest.smoothed)}, at learning rate ${settingText(lowest.learning_rate)}.${advice}`;
}

type LearningRateFinderProps = {
  /** A job of kind find_learning_rate. */
  jobId: string;
  /** Called with the suggestion when somebody takes it; without it the suggestion is only shown. */
  onUse?: (rate: number) => void;
};

/** Follows a learning-rate finder from its position in the queue to its suggestion. */
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
  const result = job.result?.kind === "find_learning_rate" ? job.result : null;
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

function Suggestion({ result: { suggested, reason, diverged_at: divergedAt }, onUse }: { result: FinderResult; onUse?: (rate: number) => void }) {
  if (suggested === null) {
    return <Notice tone="attention">{reason ?? "The sweep found no learning rate at which the loss clearly falls. Try a wider range or more steps."}</Notice>;
  }
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
      <div className="min-w-0 flex-1 basis-56">
        <p>
          <b className="font-[570]">Suggested learning rate: {settingText(suggested)}.</b> <span className="text-dim">{reason}</span>
        </p>
        {divergedAt !== null && <p className="text-xs text-dim">Training diverges at learning rates of {settingText(divergedAt)} and above.</p>}
      </div>
      {onUse && (
        <Button variant="primary" onClick={() => onUse(suggested)}>
          Use this learning rate
        </Button>
      )}
    </div>
  );
}

function Waiting({ job }: { job: Job }) {
  if (job.status === "failed") return <Notice tone="bad">{job.error_message ?? "The sweep failed. No reason was recorded."}</Notice>;
  if (isResting(job.status)) return <Notice>The sweep was stopped before it found a learning rate.</Notice>;
  const { step, total_steps: totalSteps } = job.summary;
  const text = job.status === "queued" ? "Waiting for a free device." : step === null ? "Loading the model and the data." : `Step ${step}${totalSteps === null ? "" : ` of ${countText(totalSteps)}`}: increasing the learning rate and measuring the loss.`;
  return <p className="text-dim">{text}</p>;
}
