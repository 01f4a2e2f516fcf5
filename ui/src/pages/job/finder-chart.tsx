import type { FinderPoint } from "@/api/task-results";
import { across, decades, down, frameOf, pathOf } from "@/curves/finder";
import { metricText, settingText } from "@/text/numbers";

type FinderChartProps = { points: readonly FinderPoint[]; suggested: number | null };

/** Loss over learning rate. Lines are stretched to the place there is; words lie on top, where nothing stretches them. */
export function FinderChart({ points, suggested }: FinderChartProps) {
  const frame = frameOf(points);
  if (frame === null) return <div className="h-52 rounded-control bg-white/3" />;
  const suggestedX = suggested === null ? null : across(frame, suggested);
  const nearest = suggested === null ? undefined : points.reduce((best, point) => (Math.abs(Math.log(point.rate / suggested)) < Math.abs(Math.log(best.rate / suggested)) ? point : best));
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
            <path d={pathOf(points, frame, (point) => point.loss)} stroke="#a98bfa" strokeOpacity="0.35" strokeWidth="1" vectorEffect="non-scaling-stroke" />
            <path d={pathOf(points, frame, (point) => point.smoothed)} stroke="#a98bfa" strokeWidth="1.8" strokeLinejoin="round" vectorEffect="non-scaling-stroke" />
            {suggestedX !== null && <line x1={suggestedX} x2={suggestedX} y1="0" y2="100" stroke="#5be0b0" strokeDasharray="3 4" vectorEffect="non-scaling-stroke" />}
          </svg>
          {suggestedX !== null && nearest && (
            <span className="absolute size-2.5 -translate-1/2 rounded-full bg-success-soft shadow-[0_0_0_3px_rgb(91_224_176/0.25)]" style={{ left: `${suggestedX}%`, top: `${down(frame, nearest.smoothed)}%` }} />
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
  if (!first || !last) return "Loss over learning rate. No values yet.";
  const lowest = points.reduce((best, point) => (point.smoothed < best.smoothed ? point : best));
  const advice = suggested === null ? "" : ` Suggested: ${settingText(suggested)}.`;
  return `Loss over learning rate, from ${settingText(first.rate)} to ${settingText(last.rate)}. It starts at ${metricText(first.smoothed)} and is lowest, ${metricText(lowest.smoothed)}, at ${settingText(lowest.rate)}.${advice}`;
}
