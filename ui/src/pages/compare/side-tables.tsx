/** Tables that show runs side by side: figures and config differences, with the legend of colours. */
import { Link } from "@tanstack/react-router";
import { X } from "lucide-react";
import { type ReactNode, useMemo, useState } from "react";
import type { Difference, Job, Outcome } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { JobStatusBadge } from "@/pages/jobs/job-table";
import { counted } from "@/text/numbers";
import { colourOf, figuresOf } from "./compared";

type RunLegendProps = { jobs: Job[]; labels: string[]; onRemove?: (id: string) => void };

/** Which colour is which run. */
export function RunLegend({ jobs, labels, onRemove }: RunLegendProps) {
  return (
    <Card className="py-2.5">
      <ul aria-label="Runs" className="flex flex-wrap gap-x-5 gap-y-1">
        {jobs.map((job, index) => (
          <li key={job.id} className="flex min-w-0 items-center gap-2">
            <Swatch index={index} />
            <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId: job.project_id, jobId: job.id }} className="min-w-0 truncate font-[560] underline-offset-3 hover:text-violet-soft hover:underline">
              {labels[index]}
            </Link>
            <JobStatusBadge status={job.status} />
            {onRemove && (
              <Button variant="ghost" size="icon" aria-label={`Remove ${labels[index]}`} className="size-7 max-sm:size-9" onClick={() => onRemove(job.id)}>
                <X aria-hidden />
              </Button>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Swatch({ index }: { index: number }) {
  return <span aria-hidden className="inline-block h-[3px] w-3 shrink-0 rounded-full" style={{ background: colourOf(index) }} />;
}

type SideRow = { name: string; cells: ReactNode[]; marked?: number | null };

type SideTableProps = { label: string; labels: string[]; rows: SideRow[] };

/** One column for every run. Wider than a phone with many of them, so it scrolls on its own, by keyboard too. */
function SideTable({ label, labels, rows }: SideTableProps) {
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
    <div role="region" aria-label={label} tabIndex={0} className="-mx-4 overflow-x-auto px-4">
      <table className="w-full border-collapse text-sm">
        <thead>
          <tr>
            <th scope="col" className="sticky left-0 bg-card pb-1.5 text-left">
              <span className="sr-only">Name</span>
            </th>
            {labels.map((name, index) => (
              <th key={name} scope="col" className="min-w-28 pb-1.5 pl-4 max-sm:min-w-24 max-sm:pl-2.5 text-right text-xs font-[520] text-dim">
                <span className="inline-flex max-w-44 items-center gap-2">
                  <Swatch index={index} />
                  <span className="min-w-0 truncate">{name}</span>
                </span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name} className="border-t border-line">
              <th scope="row" className="sticky left-0 max-w-48 min-w-32 bg-card py-1.75 pr-3 max-sm:min-w-26 text-left font-[450] break-words text-dim">
                {row.name}
              </th>
              {row.cells.map((cell, index) => (
                <td key={labels[index]} className="py-1.75 pl-4 max-sm:pl-2.5 text-right break-words">
                  {row.marked === index ? (
                    <span className="font-[600] text-success-soft">
                      {cell} <span className="text-2xs font-[450]">best</span>
                    </span>
                  ) : (
                    cell
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

type FiguresTableProps = { labels: string[]; outcomes: Outcome[] };

export function FiguresTable({ labels, outcomes }: FiguresTableProps) {
  const figures = useMemo(() => figuresOf(outcomes), [outcomes]);
  if (figures.length === 0) return null;
  return (
    <Card>
      <CardHeader title="Results" note="the best value of a row is marked" />
      <SideTable label="Results of the runs" labels={labels} rows={figures.map(({ name, values, text, best }) => ({ name, marked: best, cells: values.map((value) => (value === null ? "–" : text(value))) }))} />
    </Card>
  );
}

const isGroup = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

function leaves(group: Record<string, unknown>, path: string[] = []): [string, unknown][] {
  return Object.entries(group).flatMap(([name, value]): [string, unknown][] => (isGroup(value) ? leaves(value, [...path, name]) : [[[...path, name].join("."), value]]));
}

/** Every field of the configs, in the order in which the first of them has it. */
export function allFields(jobs: readonly Pick<Job, "config">[]): Difference[] {
  const fieldMaps = jobs.map(({ config }) => new Map(leaves(config ?? {})));
  const paths = [...new Set(fieldMaps.flatMap((fields) => [...fields.keys()]))];
  return paths.map((path) => ({ path, values: fieldMaps.map((fields) => fields.get(path) ?? null) }));
}

export function valueText(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.map(valueText).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export const pathText = (path: string) => path.replaceAll(".", " › ").replaceAll("_", " ");

type ConfigTableProps = { jobs: Job[]; labels: string[]; differences: Difference[] };

/** Where the configs differ; everything else only on request. */
export function ConfigTable({ jobs, labels, differences }: ConfigTableProps) {
  const [all, setAll] = useState(false);
  const rows = all ? allFields(jobs) : differences;
  return (
    <Card>
      <CardHeader title="Config" note={differences.length === 0 ? "no differences" : counted(differences.length, "difference")}>
        <button type="button" aria-pressed={all} onClick={() => setAll(!all)} className="rounded-md px-2 py-1 text-xs text-violet-soft underline-offset-3 hover:underline">
          {all ? "Show only differences" : "Show all fields"}
        </button>
      </CardHeader>
      {rows.length === 0 ? (
        <p className="py-4 text-center text-dim">These runs have the same config.</p>
      ) : (
        <SideTable label="Configs of the runs" labels={labels} rows={rows.map(({ path, values }) => ({ name: pathText(path), cells: values.map(valueText) }))} />
      )}
    </Card>
  );
}
