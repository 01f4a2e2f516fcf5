/** Parallel coordinates of the chosen runs, or of all runs that match the filter: which settings go with a good result. */
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { Table2, X } from "lucide-react";
import { useMemo, useState } from "react";
import { runComparisonQuery, runsQuery } from "@/api/runs";
import type { RunRow } from "@/api/types";
import { isInside, type AxisRange } from "@/charts/parallel";
import { axesOf, ParallelChart, type ParallelRun, parallelText } from "@/charts/parallel-chart";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Select } from "@/components/input";
import { Loaded, Skeleton } from "@/components/loaded";
import { counted } from "@/text/numbers";
import { isSeed, kindOf, titleOf } from "./run-words";

type ParallelPanelProps = { rows: readonly RunRow[]; configs: readonly string[]; metrics: readonly string[]; query: string };
type FoundRun = ParallelRun & { projectId: string | null };

const MOST_RUNS = 1_000;
/** Axes of differing settings that are drawn before anybody chooses. */
const FIRST_AXES = 5;
const MOST_AXES = 10;
const MOST_OFFERED = 100;
const FIRST_COLOURS = ["eval/loss.min", "train/loss.min", "train/loss"];

export function ParallelPanel({ rows, configs, metrics, query }: ParallelPanelProps) {
  const [all, setAll] = useState(false);
  const [wanted, setWanted] = useState<readonly string[] | null>(null);
  const [coloured, setColoured] = useState<string | null>(null);
  const [ranges, setRanges] = useState<Readonly<Record<string, AxisRange>>>({});
  const [asTable, setAsTable] = useState(false);
  const navigate = useNavigate();
  const ids = rows.flatMap((row) => row.run_ids);
  const comparison = useQuery(runComparisonQuery(ids.slice(0, 50)));
  const metricSet = useMemo(() => new Set(metrics), [metrics]);
  const named = (name: string) => ({ name, title: titleOf(name, kindOf(name, metricSet)) });

  const differing = (comparison.data?.differences ?? []).map(({ path }) => path).filter((path) => !isSeed(path));
  const axes = (wanted ?? differing.slice(0, FIRST_AXES)).slice(0, MOST_AXES);
  const measured = metrics.flatMap((name) => [`${name}.min`, name, `${name}.max`]);
  const colour = coloured ?? FIRST_COLOURS.find((name) => measured.includes(name)) ?? measured[0] ?? "time";
  const columns = [...new Set([...axes, colour])];
  // One row for each run: seeds together would be one line.
  const found = useQuery(runsQuery({ query: all ? query : `id in (${ids.join(",")})`, column: columns, group: [""], sort: "-created", limit: MOST_RUNS }));
  const runs = useMemo(() => (found.data?.sections ?? []).flatMap((section) => section.rows).map((row): FoundRun => ({ id: row.id, name: row.name, projectId: row.project_id, cells: row.cells as ParallelRun["cells"] })), [found.data]);
  const drawn = axes.map(named);
  const inside = runs.filter((run) => isInside(axesOf(runs, [...drawn, named(colour)]), ranges, run.cells));
  const offered = [...new Set([...differing, ...configs])].filter((name) => !axes.includes(name)).slice(0, MOST_OFFERED);
  const open = (run: ParallelRun) => {
    const projectId = runs.find(({ id }) => id === run.id)?.projectId;
    if (projectId) void navigate({ to: "/projects/$projectId/jobs/$jobId", params: { projectId, jobId: run.id } });
  };

  return (
    <Card role="region" aria-label="Parallel coordinates">
      <div className="flex flex-wrap items-center justify-between gap-x-4 gap-y-2">
        <h2 className="text-[13px] font-[590]">
          Parallel coordinates <span className="font-[450] text-dim">{found.data && (inside.length === runs.length ? counted(runs.length, "run") : `${inside.length} of ${counted(runs.length, "run")} in range`)}</span>
        </h2>
        <div className="flex flex-wrap items-center gap-1.5">
          <Select aria-label="Runs to draw" options={[["chosen", "Selected runs"], ["all", "All runs of the list"]] as const} value={all ? "all" : "chosen"} onChange={(event) => setAll(event.target.value === "all")} className="w-auto" />
          <Select aria-label="Colour by" options={[...new Set([colour, ...measured, ...configs.slice(0, MOST_OFFERED)])].map((name) => [name, `colour: ${name}`] as const)} value={colour} onChange={(event) => setColoured(event.target.value)} className="w-auto max-w-56" />
          {Object.keys(ranges).length > 0 && (
            <Button variant="ghost" size="small" onClick={() => setRanges({})}>
              Clear ranges
            </Button>
          )}
          <Button variant="ghost" size="small" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
            <Table2 aria-hidden />
            {asTable ? "Show as chart" : "Show as table"}
          </Button>
        </div>
      </div>
      <ul aria-label="Axes" className="my-2.5 flex flex-wrap items-center gap-1.5">
        {drawn.map(({ name }) => (
          <li key={name} className="inline-flex h-7 items-center gap-1 rounded-full border border-line-strong pr-1 pl-2.5 font-mono text-xs text-dim max-sm:h-9">
            {name}
            <button type="button" aria-label={`Remove the axis ${name}`} onClick={() => setWanted(axes.filter((other) => other !== name))} className="grid size-5 place-items-center rounded-full hover:bg-white/8 hover:text-text max-sm:size-8">
              <X aria-hidden className="size-3" />
            </button>
          </li>
        ))}
        {offered.length > 0 && axes.length < MOST_AXES && (
          <li>
            <Select aria-label="Add an axis" options={[["", "Add an axis…"], ...offered.map((name) => [name, name] as const)] as const} value="" onChange={(event) => event.target.value && setWanted([...axes, event.target.value])} className="w-auto max-w-48" />
          </li>
        )}
      </ul>
      {/* The first axes are the settings that differ; axes that somebody chose need no comparison. */}
      <Loaded<unknown> query={wanted === null && comparison.data === undefined ? comparison : found} skeleton={<Skeleton className="h-75" />}>
        {() =>
          axes.length === 0 ? (
            <p className="py-6 text-center text-dim">These runs have the same config. Add an axis to draw one anyway.</p>
          ) : asTable ? (
            <ParallelTable runs={inside} columns={columns} />
          ) : (
            <ParallelChart runs={runs} columns={drawn} colour={named(colour)} ranges={ranges} onRanges={setRanges} onOpen={open} />
          )
        }
      </Loaded>
    </Card>
  );
}

/** The same runs as rows: what is in range, with every axis as a column. */
function ParallelTable({ runs, columns }: { runs: readonly FoundRun[]; columns: readonly string[] }) {
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
    <div role="region" aria-label="Runs as a table" tabIndex={0} className="max-h-96 overflow-auto">
      <table className="w-full border-collapse text-sm">
        <thead>
          <tr className="text-2xs text-faint">
            <th scope="col" className="py-1.5 pr-3 text-left font-[450]">
              Run
            </th>
            {columns.map((name) => (
              <th key={name} scope="col" className="px-2 py-1.5 text-right font-mono font-[450]">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.id} className="border-t border-line">
              <th scope="row" className="py-1.5 pr-3 text-left font-[520]">
                {run.projectId === null ? (
                  run.name
                ) : (
                  <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId: run.projectId, jobId: run.id }} className="underline-offset-3 hover:text-violet-soft hover:underline">
                    {run.name}
                  </Link>
                )}
              </th>
              {columns.map((name) => (
                // oxlint-disable-next-line jsx-a11y/control-has-associated-label -- a cell with text, not a control
                <td key={name} className="px-2 py-1.5 text-right tabular-nums">
                  {parallelText(run.cells[name])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
