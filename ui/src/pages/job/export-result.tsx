import { useQuery } from "@tanstack/react-query";
import { Download, ExternalLink } from "lucide-react";
import { archiveAddress, modelFileAddress, modelFilesQuery } from "@/api/jobs";
import { type Exported, type Replayed, readExport } from "@/api/task-results";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { DataTable } from "@/components/data-table";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { SkeletonRows } from "@/components/skeleton";
import { bytesText, metricText } from "@/text/numbers";
import { Marked } from "./evaluation-result";

const FORMS: Record<string, string> = { merged: "Merged model", adapter: "Adapter", gguf: "GGUF" };

/** What an export wrote, whether it still answers the same, and where to get it. */
export function ExportResult({ task }: { task: Job }) {
  const exported = readExport(task.result);
  if (exported === null) return null;
  return (
    <div className="grid gap-3.5">
      <p>
        <b className="font-[570]">{FORMS[exported.form] ?? exported.form}</b>
        <span className="text-dim">
          {exported.dtype && `, ${exported.dtype}`}
          {exported.bytes !== null && `, ${bytesText(exported.bytes)}`}
        </span>
        {exported.hub && <HubLink hub={exported.hub} />}
      </p>
      <ReplayCheck exported={exported} />
      <Files task={task} />
      {exported.notes.map((note) => (
        <p key={note} className="text-xs text-dim">
          {note}
        </p>
      ))}
    </div>
  );
}

function HubLink({ hub: { repository, url } }: { hub: NonNullable<Exported["hub"]> }) {
  if (url === null) return <span className="text-dim">, pushed to {repository}</span>;
  return (
    <a href={url} target="_blank" rel="noreferrer" className="ml-3 inline-flex items-center gap-1 text-sm text-violet-soft underline-offset-3 hover:underline">
      {repository}
      <ExternalLink aria-hidden className="size-3.5" />
    </a>
  );
}

function ReplayCheck({ exported: { same, of, replay, largestDifference } }: { exported: Exported }) {
  if (of === 0) return <Notice tone="attention">No prompt was replayed, so nothing says whether it answers as before.</Notice>;
  const changed = replay.filter((one) => !one.same);
  const logits = largestDifference === null ? "" : ` The largest difference of a logit is ${metricText(largestDifference)}.`;
  if (same === of) {
    return (
      <Notice tone="good">
        <b className="mr-2 font-[570]">Answers as before.</b>
        <span className="text-dim">
          {same} of {of} replayed prompts gave the same answer.{logits}
        </span>
      </Notice>
    );
  }
  return (
    <div className="grid gap-2.5">
      <Notice tone="attention" role="alert">
        <b className="mr-2 font-[570]">Answers differ.</b>
        <span className="text-dim">
          {same} of {of} replayed prompts gave the same answer.{logits} Rounding to fewer digits can do this; fp32 rounds least. Read the differences before you use it.
        </span>
      </Notice>
      <ol className="grid gap-2">
        {changed.map((one, index) => (
          // Two prompts may read the same.
          // oxlint-disable-next-line react/no-array-index-key
          <Changed key={index} replayed={one} />
        ))}
      </ol>
    </div>
  );
}

function Changed({ replayed: { prompt, before, after } }: { replayed: Replayed }) {
  return (
    <li className="rounded-card border border-line px-3.5 py-2.5 text-sm">
      <p className="mb-1.5 font-[540] break-words whitespace-pre-wrap">{prompt}</p>
      <p className="break-words whitespace-pre-wrap text-dim">
        <span className="mr-2 text-2xs text-faint">before</span>
        {before}
      </p>
      <p className="break-words whitespace-pre-wrap">
        <span className="mr-2 text-2xs text-faint">after</span>
        <Marked before={before} after={after} />
      </p>
    </li>
  );
}

function Files({ task }: { task: Job }) {
  const files = useQuery({ ...modelFilesQuery(task.id), enabled: task.hasModel });
  if (!task.hasModel) return <p className="text-dim">Its files are no longer on this server.</p>;
  return (
    <Loaded query={files} skeleton={<SkeletonRows rows={2} />}>
      {({ items, archiveSize }) => (
        <div>
          <DataTable
            label="Exported files"
            rows={items}
            rowKey={(file) => file.path}
            columns={[
              {
                header: "File",
                lead: true,
                cell: (file) => (
                  <a href={modelFileAddress(task.id, file.path)} download className="font-mono text-xs break-all underline-offset-3 hover:text-violet-soft hover:underline">
                    {file.path}
                  </a>
                ),
              },
              { header: "Size", end: true, cell: (file) => bytesText(file.size) },
            ]}
          />
          <Button asChild className="mt-3" variant="primary">
            <a href={archiveAddress(task.id)} download>
              <Download aria-hidden />
              Download the export, {bytesText(archiveSize)}
            </a>
          </Button>
        </div>
      )}
    </Loaded>
  );
}
