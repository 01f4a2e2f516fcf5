/** The machines and ranks of a job as they are now, and what the run says about itself. */
import { number, text } from "@/api/summary";
import type { Job, RunSummary } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { cn } from "@/components/class-names";
import { type Column, DataTable } from "@/components/data-table";
import { Facts } from "@/components/figures";
import { Badge } from "@/components/notice";
import { factText, GPU_COLUMNS, gpuRows, MACHINE_COLUMNS, machineRows, type NodeNow, RANK_COLUMNS, rankRow, spreadText } from "@/text/machines";
import { counted } from "@/text/numbers";
import { sentence, toneOf } from "@/text/run-words";

/** The machines of a run. One machine is described by the run's own telemetry. */
export function nodesOf({ processes, system, facts }: Pick<RunSummary, "processes" | "system" | "facts">): NodeNow[] {
  if (processes.nodes.length > 0) return processes.nodes;
  if (Object.keys(system).length === 0) return [];
  const numbers = [...new Set(Object.keys(system).flatMap((name) => /^gpu\/(\d+)\//.exec(name)?.[1] ?? []))].map(Number).toSorted((a, b) => a - b);
  const host = processes.ranks.find(({ rank }) => rank === 0)?.host ?? null;
  return [{ host, gpus: numbers.map((index) => ({ index, name: text(facts[`gpu/${index}/name`]) })), last: system }];
}

/** The machine of each rank, for the legends of charts; nothing where there is only one machine. */
export function hostsOf({ processes }: Pick<RunSummary, "processes">): Record<string, string> {
  return processes.nodes.length < 2 ? {} : Object.fromEntries(processes.ranks.flatMap(({ rank, host }) => (host === null ? [] : [[rank, host]])));
}

type TextRow = { key: string; cells: readonly string[] };

const textColumns = (headers: readonly string[]): Column<TextRow>[] => headers.map((header, index) => ({ header, lead: index === 0, end: index > 0, cell: ({ cells }) => (cells[index] === "–" ? null : index === 0 ? cells[index] : unbroken(cells[index] ?? "")) }));

/** "3.6 GB / 25.3 GB" breaks only at the slash. */
const unbroken = (values: string) => values.replaceAll(/(?<!\/) (?!\/)/g, "\u00a0");

const textRows = (rows: readonly (readonly string[])[]): TextRow[] => rows.map((cells) => ({ key: String(cells[0]), cells }));

const TONES = { good: "good", bad: "bad", live: "teal", still: "neutral" } as const;

export function SystemCard({ job }: { job: Job }) {
  const { summary } = job;
  const { ranks, rank_variance: variance, left_out: leftOut } = summary.processes;
  const nodes = nodesOf(summary);
  const gpus = gpuRows(nodes);
  const facts = Object.entries(summary.facts);
  if (nodes.length === 0 && ranks.length === 0 && facts.length === 0) return null;
  const rankColumns: Column<(typeof ranks)[number]>[] = RANK_COLUMNS.map((header, index) => ({
    header,
    lead: index === 0,
    cell: (rank) => (header === "State" ? <Badge tone={TONES[rank.state === "alive" ? "live" : toneOf(rank.state)]}>{sentence(rank.state)}</Badge> : index === 0 ? `Rank ${rankRow(rank)[0]}` : (rankRow(rank)[index] ?? null)),
  }));
  return (
    <Card className="grid content-start gap-5">
      {nodes.length > 0 && (
        <div>
          <CardHeader title="Latest values" />
          <div className="grid gap-5">
            {gpus.length > 0 && <DataTable label="GPUs now" columns={textColumns(GPU_COLUMNS)} rows={textRows(gpus)} rowKey={({ key }) => key} />}
            <DataTable label="Machines now" columns={textColumns(MACHINE_COLUMNS)} rows={textRows(machineRows(nodes))} rowKey={({ key }) => key} />
          </div>
        </div>
      )}
      {ranks.length > 0 && (
        <div>
          <CardHeader title="Ranks" note={leftOut > 0 ? `${counted(leftOut, "more rank")} in the run directory` : counted(ranks.length, "process", "processes")} />
          <DataTable label="Ranks" columns={rankColumns} rows={ranks} rowKey={({ rank }) => String(rank)} />
          {variance.length > 0 && (
            <ul aria-label="Differences between ranks" className="mt-3 grid gap-1 text-xs text-dim">
              {variance.map((one) => (
                <li key={one.name} className={cn("wrap-anywhere", (number(one.spread) ?? 0) > 0.2 && "text-warning")}>
                  {spreadText(one)}
                </li>
              ))}
            </ul>
          )}
        </div>
      )}
      {facts.length > 0 && (
        <details className="text-sm">
          <summary className="cursor-pointer text-dim">About this run</summary>
          <div className="mt-3">
            <Facts wide facts={facts.map(([name, value]) => [sentence(name), factText(value)] as const)} />
          </div>
        </details>
      )}
    </Card>
  );
}
