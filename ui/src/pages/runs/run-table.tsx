/** The rows of the run list. On a phone each row has two lines: name and metric, then what else there is to know. */
import { Link } from "@tanstack/react-router";
import { ArrowDown, ArrowUp, ChevronDown, ChevronRight, Cloud, Laptop, Server, Tag } from "lucide-react";
import { Fragment, memo, type ReactNode, useState } from "react";
import type { JobStatus, RunList, RunRow } from "@/api/types";
import { cn } from "@/components/class-names";
import { Badge } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { JobStatusBadge, STATUSES } from "@/pages/jobs/job-table";
import { durationText } from "@/text/numbers";
import { cellText, type ColumnKind, groupColour, isQuiet, kindOf, seedsText, sourceText, spreadText, titleOf } from "./run-words";

export type Shown = { name: string; kind: ColumnKind; title: string };

/** The columns of an answer: config first, then metrics, then facts of the run. */
export function shownColumns(list: RunList): Shown[] {
  const metrics = new Set(list.metric_columns);
  const all = list.columns.map((name) => {
    const kind = kindOf(name, metrics);
    return { name, kind, title: titleOf(name, kind) };
  });
  return (["config", "metric", "run"] as const).flatMap((kind) => all.filter((column) => column.kind === kind));
}

type RunTableProps = {
  list: RunList;
  sort: string;
  onSort: (sort: string) => void;
  chosen: readonly RunRow[];
  onChoose: (row: RunRow) => void;
  onLabel: (row: RunRow) => void;
  onTag: (tag: string) => void;
};

/** Rendered anew only for other rows, another order or another choice: it is most of the page. */
export const RunTable = memo(function RunTable({ list, sort, onSort, chosen, onChoose, onLabel, onTag }: RunTableProps) {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const columns = shownColumns(list);
  const metric = columns.find((column) => column.kind === "metric")?.name;
  const best = bestValues(list, columns);
  const rowProps = { columns, metric, onLabel, onTag };
  return (
    <table role="table" aria-label="Runs" className="w-full border-collapse text-sm max-md:block">
      <thead role="rowgroup" className="max-md:sr-only">
        <GroupHeadings columns={columns} />
        <tr role="row" className="text-2xs text-faint">
          <th role="columnheader" scope="col" className="w-9 py-1.5 pl-4">
            <span className="sr-only">Select</span>
          </th>
          <th role="columnheader" scope="col" className="px-2 py-1.5 text-left font-[450]">Run</th>
          <th role="columnheader" scope="col" className="px-2 py-1.5 text-left font-[450]">Status</th>
          <th role="columnheader" scope="col" className="px-2 py-1.5 text-left font-[450] max-xl:hidden">Source</th>
          {columns.map((column, index) => (
            <SortHeading key={column.name} column={column} first={column.kind !== columns[index - 1]?.kind} sort={sort} onSort={onSort} />
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup" className="max-md:block">
        {list.sections.map((section) => (
          <Fragment key={section.title}>
            {section.title !== "" && (
              <tr role="row" className="border-t border-line bg-rail/60 max-md:block">
                <th role="rowheader" scope="colgroup" colSpan={4 + columns.length} className="px-4 py-1.75 text-left max-md:block">
                  <button type="button" aria-expanded={!closed.has(section.title)} onClick={() => setClosed((kept) => toggled(kept, section.title))} className="inline-flex items-center gap-2 font-[590]">
                    {closed.has(section.title) ? <ChevronRight aria-hidden className="size-3.5 text-dim" /> : <ChevronDown aria-hidden className="size-3.5 text-dim" />}
                    {section.title} <span className="text-xs font-[450] text-dim">{section.runs} {section.runs === 1 ? "run" : "runs"}</span>
                  </button>
                </th>
              </tr>
            )}
            {!closed.has(section.title) &&
              section.rows.map((row) => {
                const groupIndex = chosen.findIndex(({ id }) => id === row.id);
                return (
                  <Fragment key={row.id}>
                    <TableRow {...rowProps} row={row} best={best} groupIndex={groupIndex} open={open.has(row.id)} onOpen={() => setOpen((kept) => toggled(kept, row.id))} onChoose={() => onChoose(row)} />
                    {open.has(row.id) && row.members.map((member) => <TableRow key={member.id} {...rowProps} row={member} best={best} groupIndex={groupIndex} inside />)}
                  </Fragment>
                );
              })}
          </Fragment>
        ))}
      </tbody>
    </table>
  );
});

function toggled(kept: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const next = new Set(kept);
  if (!next.delete(id)) next.add(id);
  return next;
}

/** Config and metric columns are named above the table, so that a setting and a result are not mixed up. */
function GroupHeadings({ columns }: { columns: Shown[] }) {
  const names = { config: "Config", metric: "Metrics", run: "" } as const;
  const groups = (["config", "metric", "run"] as const).map((kind) => ({ kind, count: columns.filter((column) => column.kind === kind).length })).filter(({ count }) => count > 0);
  return (
    <tr role="row" aria-hidden className="text-2xs text-faint">
      {/* Nothing stands above the first columns. */}
      <td colSpan={3}>&nbsp;</td>
      <td className="max-xl:hidden">&nbsp;</td>
      {groups.map(({ kind, count }) => (
        <td key={kind} colSpan={count} className="px-2 pt-2 text-center">
          {names[kind] && <span className="block border-b border-line-strong pb-0.5">{names[kind]}</span>}
        </td>
      ))}
    </tr>
  );
}

function SortHeading({ column, first, sort, onSort }: { column: Shown; first: boolean; sort: string; onSort: (sort: string) => void }) {
  const direction = sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : undefined;
  const next = direction === "ascending" ? `-${column.name}` : direction === "descending" ? "-created" : column.name;
  return (
    <th role="columnheader" scope="col" aria-sort={direction} className={cn("px-2 py-1.5 text-right font-[450]", first && "border-l border-line")}>
      <button type="button" title={column.name} onClick={() => onSort(next)} className={cn("inline-flex items-center gap-1 whitespace-nowrap hover:text-text", direction && "font-[560] text-text")}>
        {column.title}
        {direction === "ascending" && <ArrowUp aria-hidden className="size-3" />}
        {direction === "descending" && <ArrowDown aria-hidden className="size-3" />}
      </button>
    </th>
  );
}

type RowProps = {
  row: RunRow;
  columns: Shown[];
  metric: string | undefined;
  best: ReadonlyMap<string, number>;
  /** The number of its group in the chart; -1 where it is not chosen. */
  groupIndex: number;
  /** One seed of the row above. */
  inside?: boolean;
  open?: boolean;
  onOpen?: () => void;
  onChoose?: () => void;
  onLabel: (row: RunRow) => void;
  onTag: (tag: string) => void;
};

function TableRow({ row, columns, metric, best, groupIndex, inside, open, onOpen, onChoose, onLabel, onTag }: RowProps) {
  const colour = groupIndex < 0 ? undefined : groupColour(groupIndex);
  const seeds = seedsText(row);
  return (
    <tr role="row" className={cn("group border-t border-line transition-colors duration-150 hover:bg-white/3 max-md:grid max-md:grid-cols-[2.25rem_minmax(0,1fr)_auto] max-md:items-center max-md:gap-x-2 max-md:px-3.5 max-md:py-2", groupIndex >= 0 && "bg-violet/12 hover:bg-violet/16")}>
      <td role="cell" className="py-2 pl-4 align-middle max-md:row-span-2 max-md:p-0">
        {inside ? (
          <span aria-hidden className="block h-[3px] w-2.5 rounded-full" style={{ background: colour ?? "var(--color-line-strong)" }} />
        ) : (
          <input type="checkbox" aria-label={`Show ${row.name} in the chart`} checked={groupIndex >= 0} onChange={onChoose} style={{ accentColor: colour }} className="size-4 align-middle accent-violet max-md:size-5" />
        )}
      </td>
      <td role="cell" className={cn("max-w-96 px-2 py-2 align-middle max-md:p-0", inside && "pl-9 max-md:pl-3")}>
        <div className="flex min-w-0 flex-wrap items-center gap-x-2 gap-y-0.5">
          {row.members.length > 0 && (
            <button type="button" aria-expanded={open} aria-label={`Show the seeds of ${row.name}`} onClick={onOpen} className="-ml-1 grid size-5 place-items-center text-dim hover:text-text max-md:size-7">
              {open ? <ChevronDown aria-hidden className="size-3.5" /> : <ChevronRight aria-hidden className="size-3.5" />}
            </button>
          )}
          <RunName row={row} inside={inside} />
          {seeds && <span className="text-xs text-dim">{seeds}</span>}
          {!inside &&
            row.tags.map((tag) => (
              <button key={tag} type="button" title={`Show runs with the tag ${tag}`} onClick={() => onTag(tag)} className="rounded bg-white/8 px-1.5 text-2xs text-dim hover:text-text max-md:hidden">
                {tag}
              </button>
            ))}
          <button type="button" aria-label={`Tags and notes of ${row.name}`} title={row.notes || "Tags and notes"} onClick={() => onLabel(row)} className={cn("grid size-5 place-items-center text-faint hover:text-text focus-visible:opacity-100 max-md:hidden", row.notes ? "text-warning" : "opacity-0 group-hover:opacity-100")}>
            <Tag aria-hidden className="size-3.5" />
          </button>
        </div>
        {row.error && row.status === "failed" && <p className="line-clamp-2 text-xs wrap-anywhere text-danger-soft" title={row.error}>{row.error}</p>}
      </td>
      <td role="cell" className="px-2 py-2 align-middle max-md:hidden">
        <RowStatus row={row} />
      </td>
      <td role="cell" className="px-2 py-2 align-middle whitespace-nowrap text-dim max-xl:hidden">
        <Source row={row} />
      </td>
      {columns.map((column, index) => (
        <td key={column.name} role="cell" className={cn("px-2 py-2 text-right align-middle whitespace-nowrap last:pr-4 max-md:hidden", column.kind !== columns[index - 1]?.kind && "border-l border-line", column.name === metric && "font-[590]")}>
          <Cell row={row} column={column} best={best} />
        </td>
      ))}
      <td role="cell" className="text-right font-[590] md:hidden">{metric && <Cell row={row} column={columns.find(({ name }) => name === metric) as Shown} best={best} stacked />}</td>
      <td role="cell" className="col-span-2 min-w-0 truncate text-xs text-dim md:hidden">
        <PhoneLine row={row} columns={columns} />
      </td>
    </tr>
  );
}

/** A run leads to its page; a row of several seeds has none. */
function RunName({ row, inside }: { row: RunRow; inside: boolean | undefined }) {
  const name = inside && row.seed !== null ? `seed ${String(row.seed)}` : row.name;
  if (row.members.length > 0 || row.project_id === null) return <span className="font-[570] wrap-anywhere">{name}</span>;
  return (
    <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId: row.project_id, jobId: row.id }} className={cn("wrap-anywhere underline-offset-3 hover:text-violet-soft hover:underline", inside ? "text-dim" : "font-[570]")}>
      {name}
    </Link>
  );
}

const isKnown = (status: string): status is JobStatus => (STATUSES as string[]).includes(status);

function RowStatus({ row }: { row: RunRow }) {
  const count = row.run_ids.length;
  if (count === 1) {
    const share = row.status === "running" && row.step !== null && row.total_steps ? ` ${Math.floor((100 * row.step) / row.total_steps)} %` : "";
    if (isQuiet(row) && row.seen !== null) {
      return (
        <Badge tone="neutral">
          last seen <TimeAgo at={new Date(row.seen * 1000).toISOString()} />
        </Badge>
      );
    }
    if (!isKnown(row.status)) return <Badge tone={row.status === "killed" ? "bad" : "neutral"}>{row.status}</Badge>;
    return <JobStatusBadge status={row.status} note={share} />;
  }
  const of = row.statuses[row.status] ?? 0;
  const text = of === count ? `${count} ${row.status}` : `${of} of ${count} ${row.status}`;
  return <Badge tone={row.status === "failed" ? "bad" : row.status === "running" ? "good" : "violet"}>{text}</Badge>;
}

function Source({ row }: { row: RunRow }) {
  const Icon = row.source === "local" ? Server : row.kind === "run" ? Laptop : Cloud;
  return (
    <span className="inline-flex items-center gap-1.5">
      <Icon aria-hidden className="size-3.5" />
      {sourceText(row.source)}
    </span>
  );
}

function Cell({ row, column, best, stacked }: { row: RunRow; column: Shown; best: ReadonlyMap<string, number>; stacked?: boolean }): ReactNode {
  const value = row.cells[column.name];
  const spread = column.kind === "metric" ? row.spread[column.name] : undefined;
  const running = column.name === "time" && row.status === "running" && row.eta_seconds !== null;
  const text = running ? `${durationText(row.eta_seconds ?? 0)} left` : cellText(column.name, value, column.kind);
  const isBest = row.members.length === 0 && typeof value === "number" && best.get(column.name) === value;
  return (
    <>
      {isBest && <span className="mr-1.5 rounded-full border border-success/40 px-1.5 text-2xs font-[450] text-success-soft">best</span>}
      <span className={cn(text === "–" && "text-faint")}>{text}</span>
      {spread !== undefined && <span className={cn("text-xs font-[450] text-dim", stacked ? "block" : "ml-1")}>± {spreadText(spread)}</span>}
    </>
  );
}

function PhoneLine({ row, columns }: { row: RunRow; columns: Shown[] }) {
  const config = columns.find((column) => column.kind === "config");
  const time = columns.find((column) => column.name === "time");
  const parts = [
    config && `${config.title} ${cellText(config.name, row.cells[config.name], config.kind)}`,
    sourceText(row.source),
    row.status === "running" && row.eta_seconds !== null ? `${durationText(row.eta_seconds)} left` : time && row.cells.time !== null && row.cells.time !== undefined ? cellText("time", row.cells.time, "run") : row.status,
  ];
  const tone = row.status === "failed" ? "bg-danger-soft" : row.status === "running" ? "bg-success" : "bg-violet-soft";
  return (
    <>
      <span aria-hidden className={cn("mr-1.5 inline-block size-2 rounded-full", tone)} />
      <span className="sr-only">{row.status}, </span>
      {parts.filter(Boolean).join(" · ")}
    </>
  );
}

/** The lowest value of each lowest-is-best column, where several runs have one. */
function bestValues(list: RunList, columns: Shown[]): Map<string, number> {
  const rows = list.sections.flatMap((section) => section.rows).flatMap((row) => (row.members.length > 0 ? row.members : [row]));
  const found = new Map<string, number>();
  for (const { name } of columns.filter((column) => column.kind === "metric" && column.name.endsWith("loss.min"))) {
    const values = rows.map((row) => row.cells[name]).filter((value): value is number => typeof value === "number");
    if (values.length > 1) found.set(name, Math.min(...values));
  }
  return found;
}
