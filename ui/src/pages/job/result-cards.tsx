/** Results of a job: best loss, model files, artifacts. */
import { useQuery } from "@tanstack/react-query";
import { Download, FileBox } from "lucide-react";
import { useSyncExternalStore } from "react";
import { archiveAddress, artifactAddress, artifactsArchiveAddress, artifactsQuery, checkpointsQuery, isResting, modelFileAddress, modelFilesQuery } from "@/api/jobs";
import { lastValue } from "@/api/summary";
import type { Job } from "@/api/types";
import type { CurveStore } from "@/charts/curve-store";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { DataTable } from "@/components/data-table";
import { Facts } from "@/components/figures";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { bytesText, counted, countText, metricText } from "@/text/numbers";

/** What a run came to, or has come to so far: its last values, and its best. */
export function ResultCard({ job, store }: { job: Job; store: CurveStore }) {
  const { summary } = job;
  const checkpoints = useQuery(checkpointsQuery(job.id));
  const best = checkpoints.data?.items.find((checkpoint) => checkpoint.best);
  const lines: [string, string][] = [];
  const add = (name: string, value: number | undefined, text = metricText) => value !== undefined && lines.push([name, text(value)]);
  const last = isResting(job.status) ? "Final" : "Latest";
  add(`${last} loss`, lastValue(summary, "train/loss"));
  add(`${last} eval loss`, lastValue(summary, "eval/loss"));
  const bestEval = useLowest(store, "eval/loss");
  // A run that diverged or used few rows has no best step.
  const hasBest = !summary.findings.some((finding) => finding.without_best);
  if (bestEval && hasBest) lines.push(["Best eval loss", `${metricText(bestEval.value)} at step ${countText(bestEval.step)}`]);
  add("Eval accuracy", lastValue(summary, "eval/accuracy"), (value) => `${(value * 100).toFixed(1)} %`);
  add("Eval perplexity", lastValue(summary, "eval/perplexity"));
  if (best) lines.push(["Best checkpoint", `step ${countText(best.step)}`]);
  add("Steps", summary.step ?? undefined, countText);
  add("Tokens seen", lastValue(summary, "train/tokens_seen"), countText);
  if (typeof summary.facts.model === "string") lines.push(["Model", summary.facts.model]);
  return (
    <Card>
      <CardHeader title={last === "Final" ? "Result" : "Result so far"} />
      <Facts wide facts={lines} />
    </Card>
  );
}

function useLowest(store: CurveStore, name: string): { step: number; value: number } | null {
  const best = useSyncExternalStore(store.subscribe, () => {
    const curve = store.curve(name);
    if (!curve || curve.value.length === 0) return null;
    const at = curve.low.indexOf(Math.min(...curve.low));
    return `${curve.x[at]} ${curve.low[at]}`;
  });
  if (best === null) return null;
  const [step = 0, value = 0] = best.split(" ").map(Number);
  return { step, value };
}

type FileTableProps = { label: string; files: { path: string; size: number }[]; addressOf: (path: string) => string };

/** Files with their sizes; each name downloads the file. */
function FileTable({ label, files, addressOf }: FileTableProps) {
  return (
    <DataTable
      label={label}
      rows={files}
      rowKey={(file) => file.path}
      columns={[
        {
          header: "File",
          lead: true,
          cell: (file) => (
            <a href={addressOf(file.path)} download className="font-mono text-xs break-all underline-offset-3 hover:text-violet-soft hover:underline">
              {file.path}
            </a>
          ),
        },
        { header: "Size", end: true, cell: (file) => bytesText(file.size) },
      ]}
    />
  );
}

/** Files behind a line with their number: people download the archive, and a long list would push the rest down. */
export function FoldedFiles(props: FileTableProps) {
  return (
    <details>
      <summary className="cursor-pointer text-sm text-dim hover:text-text">{counted(props.files.length, "file")}</summary>
      <FileTable {...props} />
    </details>
  );
}

/** The finished model: as one archive, or file by file. */
export function ModelCard({ job }: { job: Job }) {
  const files = useQuery(modelFilesQuery(job.id));
  return (
    <Card>
      <CardHeader title="Model" note="in Hugging Face transformers format" />
      <Loaded query={files} skeleton={<SkeletonRows rows={3} />}>
        {({ items, archive_size: archiveSize }) => (
          <>
            <FoldedFiles label="Model files" files={items} addressOf={(path) => modelFileAddress(job.id, path)} />
            <ArchiveLink address={archiveAddress(job.id)} size={archiveSize} />
          </>
        )}
      </Loaded>
    </Card>
  );
}

function ArchiveLink({ address, size }: { address: string; size: number }) {
  return (
    <Button asChild className="mt-3">
      <a href={address} download>
        <Download aria-hidden />
        Download all as one archive, {bytesText(size)}
      </a>
    </Button>
  );
}

const VISIBLE_ROWS = 8;

/** What a script wrote or changed in its folder, while it runs as well. */
export function ArtifactsCard({ job }: { job: Job }) {
  const files = useQuery(artifactsQuery(job));
  return (
    <Card className="h-full">
      <CardHeader title="Output files" note={files.data && files.data.items.length > 0 && counted(files.data.items.length, "file")} />
      <Loaded query={files} skeleton={<SkeletonRows rows={3} />}>
        {({ items, archive_size: archiveSize }) =>
          items.length === 0 ? (
            <EmptyState icon={FileBox} title="No files yet.">
              Files that the script writes into its folder appear here, such as checkpoints, logs and samples.
            </EmptyState>
          ) : (
            <>
              <FileTable label="Output files" files={items.slice(0, VISIBLE_ROWS)} addressOf={(path) => artifactAddress(job.id, path)} />
              {items.length > VISIBLE_ROWS && <p className="mt-2 text-xs text-faint">The archive has {counted(items.length - VISIBLE_ROWS, "more file")}.</p>}
              <ArchiveLink address={artifactsArchiveAddress(job.id)} size={archiveSize} />
            </>
          )
        }
      </Loaded>
    </Card>
  );
}
