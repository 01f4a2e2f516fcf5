import type { Lengths } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/pages/jobs/facts";
import { countText, counted } from "@/text/numbers";

type Bar = Lengths["histogram"][number];

const longestOf = ({ longest: [first] }: Lengths) => first?.[1] ?? 0;

/** How long the examples are. */
export function LengthsCard({ lengths }: { lengths: Lengths }) {
  const { unit } = lengths;
  return (
    <Card aria-label="Lengths">
      <CardHeader title="Lengths" note={`in ${unit} per example`} />
      <Histogram lengths={lengths} />
      <div className="mt-3.5">
        <Facts
          facts={[
            ["Half are shorter than", countText(lengths.halfBelow)],
            ["95 of 100 are shorter than", countText(lengths.mostBelow)],
            ["Longest", countText(longestOf(lengths))],
            [`All ${unit}`, countText(lengths.total)],
            ["Of them trained", `${countText(lengths.trained)} · ${lengths.total > 0 ? Math.round((lengths.trained / lengths.total) * 100) : 0} %`],
          ]}
        />
      </div>
    </Card>
  );
}

const range = (bar: Bar, longest: number) => (bar.end > longest + 1 ? `${countText(bar.begin)} and more` : `${countText(bar.begin)}–${countText(bar.end - 1)}`);

function Histogram({ lengths }: { lengths: Lengths }) {
  const { histogram: bars, unit, halfBelow, mostBelow } = lengths;
  const longest = longestOf(lengths);
  const tallest = Math.max(1, ...bars.map((bar) => bar.rows));
  const [first] = bars;
  if (!first) return null;
  const label = `Histogram of lengths: half of the examples have fewer than ${countText(halfBelow)} ${unit}, 95 of 100 fewer than ${countText(mostBelow)}, the longest ${countText(longest)}.`;
  return (
    <div role="img" aria-label={label}>
      <div className="flex h-28 items-end gap-px border-b border-line-strong">
        {bars.map((bar) => (
          <div key={bar.begin} title={`${range(bar, longest)} ${unit}: ${counted(bar.rows, "row")}`} className="group flex h-full min-w-0 flex-1 items-end hover:bg-white/5">
            {/* A bar that stands for one row of a million is still to be seen. */}
            <div className="w-full rounded-t-[3px] bg-teal group-hover:bg-teal-soft" style={{ height: bar.rows === 0 ? 0 : `max(2px, ${(bar.rows / tallest) * 100}%)` }} />
          </div>
        ))}
      </div>
      <div aria-hidden className="mt-1 flex justify-between text-2xs text-faint tabular-nums">
        <span>{countText(first.begin)}</span>
        <span>{countText(longest)}</span>
      </div>
    </div>
  );
}
