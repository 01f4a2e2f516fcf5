/** The chosen runs in one chart, and beside it how their configs differ. */
import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight, TriangleAlert } from "lucide-react";
import { Fragment, useEffect, useMemo, useState } from "react";
import { overlayQuery, runComparisonQuery } from "@/api/runs";
import type { Curve, Overlay, RunRow } from "@/api/types";
import { ChartCard } from "@/charts/chart-card";
import type { PageChartSpec } from "@/charts/chart-spec";
import { ChartsViewContext, DrawingTools, useNewChartsView } from "@/charts/charts-view";
import { CurveStore } from "@/charts/curve-store";
import type { LineSpec } from "@/charts/plot-data";
import { hasDots, isLong } from "@/charts/run-charts";
import { Button, CopyButton } from "@/components/button";
import { Card } from "@/components/card";
import { Select } from "@/components/input";
import { Loaded, Skeleton, SkeletonRows } from "@/components/loaded";
import { counted, metricText } from "@/text/numbers";
import { ParallelPanel } from "./parallel-panel";
import { cutNames, groupColour, isSeed, shortNames, valueText } from "./run-words";

type ComparePanelProps = { rows: readonly RunRow[]; configs: readonly string[]; metrics: readonly string[]; query: string; onClear: () => void };

const FIRST_CHOICES = ["eval/loss", "train/loss"];

export default function ComparePanel({ rows, configs, metrics, query, onClear }: ComparePanelProps) {
  const [wanted, setWanted] = useState<string | null>(null);
  const [along, setAlong] = useState<"step" | "tokens">("step");
  const series = wanted ?? FIRST_CHOICES.find((name) => metrics.includes(name)) ?? metrics[0] ?? "";
  const groups = useMemo(() => rows.map((row) => row.run_ids.join(",")), [rows]);
  const overlay = useQuery(overlayQuery({ series, groups, along }, rows.some((row) => row.status === "running")));
  const runs = rows.reduce((sum, row) => sum + row.run_ids.length, 0);
  const note = rows.length === 1 ? "" : ` in ${counted(rows.length, "group")}`;
  return (
    <section aria-label="Comparison" className="mt-3.5 grid gap-3.5 lg:grid-cols-[minmax(0,1fr)_23rem]">
      <div className="min-w-0">
        <Card className="mb-0 rounded-b-none border-b-0 pb-1">
          <div className="flex flex-wrap items-center justify-between gap-x-4 gap-y-2">
            <h2 className="text-[13px] font-[590]">
              {counted(runs, "run")} selected<span className="font-[450] text-dim">{note}</span>
            </h2>
            <div className="flex flex-wrap items-center gap-1.5">
              <Select aria-label="Metric" options={metrics.map((name) => [name, name] as const)} value={series} onChange={(event) => setWanted(event.target.value)} className="w-auto max-w-48" />
              <Select aria-label="Horizontal axis" options={[["step", "by step"], ["tokens", "by tokens"]] as const} value={along} onChange={(event) => setAlong(event.target.value as "step" | "tokens")} className="w-auto" />
              <Button variant="ghost" size="small" onClick={onClear}>
                Clear
              </Button>
            </div>
          </div>
        </Card>
        {/* Runs that report no metric have nothing to wait for. */}
        {series !== "" && (
          <Loaded query={overlay} skeleton={<Skeleton className="h-80 rounded-t-none rounded-b-card" />}>
            {(loaded) => <OverlayChart key={`${series} ${along}`} rows={rows} overlay={loaded} along={along} />}
          </Loaded>
        )}
      </div>
      <ConfigDiff rows={rows} />
      {runs > 1 && (
        <div className="min-w-0 lg:col-span-full">
          <ParallelPanel rows={rows} configs={configs} metrics={metrics} query={query} />
        </div>
      )}
    </section>
  );
}

function OverlayChart({ rows, overlay, along }: { rows: readonly RunRow[]; overlay: Overlay; along: "step" | "tokens" }) {
  const [store] = useState(() => new CurveStore());
  const view = useNewChartsView(store, NO_MARKS);
  // A text can be compared: a new chart is made only for other lines, not for every new point.
  const lines = JSON.stringify(overlayLines(shortNames(rows), overlay));
  const spec = useMemo(() => overlaySpec(overlay.series, JSON.parse(lines) as LineSpec[], along), [overlay.series, lines, along]);
  useEffect(() => store.load({ position: 0, series: overlayCurves(overlay) }), [store, overlay]);
  if (spec.lines.length === 0) {
    return (
      <Card className="rounded-t-none">
        <p className="grid h-40 place-items-center text-center text-dim">None of these runs reports {overlay.series}.</p>
      </Card>
    );
  }
  return (
    <ChartsViewContext value={view}>
      <ChartCard spec={spec} className="rounded-t-none border-t-0 pt-1">
        <span className="flex items-center gap-3">
          <DrawingTools hasSmoothing={spec.lines.some(({ dots }) => !dots)} />
        </span>
      </ChartCard>
      {overlay.groups.some(({ runs, failed }) => runs + failed.length > 1) && (
        <p className="mt-1.5 text-xs text-faint">Line: mean over seeds. Band: lowest and highest seed. A run that did not complete is left out of the mean.</p>
      )}
    </ChartsViewContext>
  );
}

const NO_MARKS: [] = [];

/** A line for each group, and one for each run of it that did not complete. */
export function overlayLines(labels: readonly string[], overlay: Overlay): LineSpec[] {
  return overlay.groups.flatMap((group, index): LineSpec[] => {
    const colour = groupColour(index);
    const drawn = (x: readonly number[]) => ({ colour, dots: hasDots({ name: overlay.series, isLong: isLong(x) }) });
    const failed = group.failed.map((curve, number): LineSpec => ({ name: `${index}/${number}`, label: `${curve.name}, not completed`, ...drawn(curve.x), failed: true }));
    return [...(group.runs > 0 ? [{ name: String(index), label: labels[index] ?? "", ...drawn(group.x) }] : []), ...failed];
  });
}

function overlaySpec(title: string, lines: LineSpec[], along: "step" | "tokens"): PageChartSpec {
  return { title, height: 260, format: metricText, mayBeLogarithmic: true, smoothed: true, axis: "step", lines, ...(along === "tokens" ? { over: "tokens" as const } : {}) };
}

/** Every group as a curve: the mean between its lowest and highest run. */
export function overlayCurves(overlay: Overlay): Curve[] {
  return overlay.groups.flatMap((group, index) => [
    curveOf(String(index), group.x, group.mean, group.low, group.high),
    ...group.failed.map((curve, number) => curveOf(`${index}/${number}`, curve.x, curve.y, curve.y, curve.y)),
  ]);
}

function curveOf(name: string, x: number[], value: number[], low: number[], high: number[]): Curve {
  const [lastX, last] = [x.at(-1), value.at(-1)];
  return { name, rank: 0, axis: "step", x, value, low, high, count: x.map(() => 1), gaps: { x: [], attempt: [] }, attempt: x.map(() => 1), last: lastX === undefined || last === undefined ? null : { x: Math.round(lastX), attempt: 1, value: last } };
}

const MOST_EQUAL = 200;

/** How the configs of the chosen rows differ. Docked beside the chart, so that it covers no row. */
function ConfigDiff({ rows }: { rows: readonly RunRow[] }) {
  const [open, setOpen] = useState(true);
  const [all, setAll] = useState(false);
  const ids = rows.map((row) => row.run_ids[0] ?? "");
  const comparison = useQuery(runComparisonQuery(ids));
  const several = rows.some((row) => row.members.length > 0);
  const differences = (comparison.data?.differences ?? []).filter(({ path }) => !(several && isSeed(path)));
  const facts = comparison.data?.fact_differences ?? [];
  const equal = comparison.data?.equal ?? [];
  const mixed = rows.length > 1 && differences.length > 1;
  const table = [...differences, ...facts];
  const text = [["", ...shortNames(rows)], ...table.map(({ path, values }) => [path, ...values.map(valueText)])].map((cells) => cells.join("\t")).join("\n");
  return (
    <Card className="self-start">
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex w-full items-center gap-2.5 text-left">
        <h2 className="text-[13px] font-[590]">Config diff</h2>
        {comparison.data && rows.length > 1 && (
          <span className="text-xs text-dim">
            {differences.length} of {differences.length + equal.length} differ
          </span>
        )}
        {open ? <ChevronDown aria-hidden className="ml-auto size-4 text-dim" /> : <ChevronRight aria-hidden className="ml-auto size-4 text-dim" />}
      </button>
      {open && rows.length < 2 && <p className="mt-2 text-dim">Select a second row to see how their configs differ.</p>}
      {open && rows.length > 1 && (
        <Loaded query={comparison} skeleton={<SkeletonRows rows={3} className="mt-2" />}>
          {() => (
            <>
              {mixed && (
                <p className="mt-2.5 flex gap-2 rounded-control border border-warning/30 bg-warning/8 px-3 py-2 text-sm">
                  <TriangleAlert aria-hidden className="mt-0.5 size-4 shrink-0 text-warning" />
                  <span>
                    <b className="font-[590]">Not a clean comparison.</b> The runs differ in {counted(differences.length, "setting")}.
                  </span>
                </p>
              )}
              {table.length === 0 ? <p className="mt-2 text-dim">These runs have the same config.</p> : <DiffTable title="Settings that differ" rows={rows} differences={table} />}
              {all && <DiffTable title="Equal settings" rows={rows} differences={equal.slice(0, MOST_EQUAL).map(({ path, values }) => ({ path, values: rows.map(() => values[0] ?? null) }))} />}
              <div className="mt-2 flex items-center justify-between gap-3 text-xs">
                <button type="button" aria-pressed={all} onClick={() => setAll(!all)} className="text-violet-soft underline-offset-3 hover:underline">
                  {all ? "Hide equal settings" : `Show ${counted(equal.length, "equal setting")}`}
                </button>
                <CopyButton text={text} label="Copy as table" />
              </div>
            </>
          )}
        </Loaded>
      )}
    </Card>
  );
}

/** Three lines of a narrow column. */
const HEAD_ROOM = 30;

function DiffTable({ title, rows, differences }: { title: string; rows: readonly RunRow[]; differences: readonly { path: string; values: unknown[] }[] }) {
  const labels = shortNames(rows);
  const heads = cutNames(labels, HEAD_ROOM);
  // A script has no config: it is neither different nor what the others are compared with.
  const hasConfig = labels.map((_, column) => differences.some(({ values }) => values[column] !== null));
  const first = Math.max(0, hasConfig.indexOf(true));
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
    <div role="region" aria-label={title} tabIndex={0} className="relative mt-2.5 max-h-80 overflow-auto">
      <table className="w-full border-collapse text-sm">
        <thead>
          <tr>
            <th scope="col" className="text-left">
              <span className="sr-only">Setting</span>
            </th>
            {labels.map((label, index) => (
              // oxlint-disable-next-line jsx-a11y/control-has-associated-label -- a heading with text, not a control
              <th key={label} scope="col" className="py-1 pl-3 text-right align-bottom text-xs leading-snug font-[520] text-dim">
                <span className="sr-only">{label}</span>
                <span aria-hidden title={label} className="ml-auto block w-max max-w-20 wrap-break-word">
                  <span className="mb-1 ml-auto block h-[3px] w-2.5 rounded-full" style={{ background: groupColour(index) }} />
                  {heads[index]}
                </span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {differences.map(({ path, values }) => (
            <tr key={path} className="border-t border-line">
              <th scope="row" className="max-w-40 py-1.5 pr-2 text-left font-mono text-xs font-[450] wrap-break-word text-dim">
                <SettingName path={path} />
              </th>
              {values.map((value, index) => (
                // oxlint-disable-next-line jsx-a11y/control-has-associated-label -- a cell with text, not a control
                <td key={index} className={`py-1.5 pl-3 text-right wrap-anywhere ${hasConfig[index] && value !== values[first] ? "font-[560] text-warning" : ""}`}>
                  {valueText(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Breaks between its words: beside several runs there is little room. */
const SettingName = ({ path }: { path: string }) =>
  path.split(/(?<=[._])/).map((part, index) => (
    <Fragment key={index}>
      {index > 0 && <wbr />}
      {part}
    </Fragment>
  ));
