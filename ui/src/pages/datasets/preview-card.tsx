/** Rows of a dataset as the model sees them. */
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { previewQuery } from "@/api/datasets";
import { modelsQuery } from "@/api/models";
import type { Dataset, DatasetReport, Piece, PreviewRow, RowSource } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { PageSteps } from "@/components/data-table";
import { Select } from "@/components/input";
import { Loaded, Skeleton, Updating } from "@/components/loaded";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { countText, sentence } from "@/text/numbers";

const PAGE = 5;

/** Rows as they are in the file, and as the model will see them. */
export function PreviewCard({ dataset, report }: { dataset: Dataset; report: DatasetReport }) {
  const [page, setPage] = useState(1);
  const [modelId, setModelId] = useState("");
  const [showSpace, setShowSpace] = useState(false);
  const models = useQuery(modelsQuery);
  const ready = (models.data?.items ?? []).filter((model) => model.status === "ready");
  const preview = useQuery(previewQuery(dataset, { offset: (page - 1) * PAGE, limit: PAGE, model_id: modelId || undefined }));
  const options = [["", "No model (plain template)"] as const, ...ready.map(({ id, name }) => [id, name] as const)];
  const readable = report.mapping !== null;
  const total = preview.data?.total ?? report.rows;

  const rows = (show: (row: PreviewRow) => ReactNode) => (
    <Loaded query={preview} skeleton={<PreviewSkeleton />}>
      {(loaded) => (
        <Updating pending={preview.isPlaceholderData}>
          <ol className="grid gap-3">
            {loaded.items.map((row) => (
              <li key={row.number} className="min-w-0">
                <RowHead row={row} />
                <RowSourceLine source={row.source} />
                {show(row)}
              </li>
            ))}
          </ol>
          <PageSteps page={page} pageSize={PAGE} total={total} onTurn={setPage} />
        </Updating>
      )}
    </Loaded>
  );

  return (
    <Card aria-label="Preview">
      <CardHeader title="Preview" />
      <Tabs defaultValue={readable ? "seen" : "raw"}>
        <TabList aria-label="Preview">
          <Tab value="seen">What the model sees</Tab>
          <Tab value="raw">Raw rows</Tab>
        </TabList>
        <TabPanel value="seen" tabIndex={-1}>
          {readable ? (
            <>
              <div className="mb-3.5 flex flex-wrap items-center gap-x-5 gap-y-2.5">
                <Select aria-label="Model" options={options} value={modelId} onChange={(event) => setModelId(event.target.value)} className="w-full sm:w-64" />
                <label className="flex cursor-pointer items-center gap-2 text-sm text-dim">
                  <input type="checkbox" checked={showSpace} onChange={(event) => setShowSpace(event.target.checked)} className="size-4 accent-violet" />
                  Show whitespace
                </label>
                <span className="text-sm text-dim">
                  <mark className="rounded-[3px] bg-teal/30 px-1 text-teal-pale decoration-teal-soft/70 underline underline-offset-4">Highlighted</mark>: text that the model is trained on.
                </span>
              </div>
              {/* What is true of the whole file stands above already. */}
              {preview.data?.notes
                .filter((note) => !report.notes.includes(note))
                .map((note) => (
                  <p key={note} className="mb-3 text-sm text-warning">
                    {note}
                  </p>
                ))}
              {rows((row) => row.pieces.length > 0 && <RowText key={showSpace ? "space" : "plain"} pieces={row.pieces} showSpace={showSpace} />)}
            </>
          ) : (
            <p className="text-dim">Assign the columns above first. The preview then shows what a model learns from each row.</p>
          )}
        </TabPanel>
        <TabPanel value="raw" tabIndex={-1}>
          {rows((row) => (
            <RowText pieces={[{ text: rawText(row.raw), trained: false }]} />
          ))}
        </TabPanel>
      </Tabs>
    </Card>
  );
}

const rawText = (raw: unknown) => (typeof raw === "string" ? raw : JSON.stringify(raw, null, 2));

function RowHead({ row }: { row: PreviewRow }) {
  const facts = [
    `Row ${countText(row.number)}`,
    row.line !== null && `line ${countText(row.line)}`,
    row.tokens !== null && `${countText(row.tokens)} tokens${row.trained_tokens === null ? "" : `, ${countText(row.trained_tokens)} trained`}`,
  ].filter(Boolean);
  return (
    <div className="mb-1 text-xs text-faint tabular-nums">
      {facts.join(" · ")}
      {row.too_long && <p className="text-warning">The row is longer than the context length of the model.</p>}
      {row.cut && <p>The row is very long. Only part of the row is shown.</p>}
      {row.problem !== null && <p className="text-danger-soft">{sentence(`Skipped: the row ${row.problem}`)}</p>}
      {row.remarks.map((remark) => (
        <p key={remark} className="text-warning">
          {sentence(`The row ${remark}`)}
        </p>
      ))}
    </div>
  );
}

/** Where a row comes from, in words. */
export function sourceText({ file, passage, page, last_page: last, heading }: RowSource): string {
  const pages = page === null ? null : last === null || last === page ? `page ${countText(page)}` : `pages ${countText(page)}–${countText(last)}`;
  return [file, pages, heading, `passage ${countText(passage)}`].filter((part) => part !== null).join(" · ");
}

/** The source beside its passage; of a question also the passage that it was written about. */
function RowSourceLine({ source }: { source: RowSource | null }) {
  if (source === null) return null;
  return (
    <div className="mb-1 text-xs">
      <p className="wrap-anywhere text-teal-soft">{sourceText(source)}</p>
      {source.text !== null && (
        <details className="mt-0.5">
          <summary className="cursor-pointer text-dim hover:text-text">Show the passage</summary>
          <p className="mt-1 rounded-control border border-line px-3 py-2 whitespace-pre-wrap wrap-anywhere text-dim">{source.text}</p>
        </details>
      )}
    </div>
  );
}

function PreviewSkeleton() {
  return (
    <div className="grid gap-3">
      <Skeleton className="h-28 rounded-control" />
      <Skeleton className="h-28 rounded-control" />
      <Skeleton className="h-28 rounded-control" />
    </div>
  );
}

// Five rows of this length are a screen of a desktop, and two of a phone.
const AT_FIRST = 500;
const AND_THEN = 20_000;

/** A text in pieces; what is trained stands out. Wrapped: what scrolls sideways is out of reach for a keyboard. */
export function RowText({ pieces, showSpace = false }: { pieces: readonly Piece[]; showSpace?: boolean }) {
  const [most, setMost] = useState(AT_FIRST);
  const { pieces: visible, left } = beginning(pieces, most);
  return (
    <>
      <pre className="rounded-control border border-line bg-rail px-3 py-2 font-mono text-xs leading-[1.65] wrap-anywhere whitespace-pre-wrap text-code">
        {visible.map((piece, index) => {
          const text = showSpace ? visibleSpace(piece.text) : piece.text;
          return piece.trained ? (
            // Pieces have no name of their own, and their order never changes.
            // oxlint-disable-next-line react/no-array-index-key
            <mark key={index} className="rounded-[3px] bg-teal/30 text-teal-pale decoration-teal-soft/70 underline underline-offset-4">
              {text}
            </mark>
          ) : (
            text
          );
        })}
        {left > 0 && "…"}
      </pre>
      {left > 0 && (
        <button type="button" onClick={() => setMost(most + AND_THEN)} className="mt-1 rounded-md text-xs text-violet-soft underline-offset-3 hover:underline">
          Show more, {countText(left)} characters left
        </button>
      )}
    </>
  );
}

/** Space that can be seen: dots for blanks, arrows for tabs and line ends. The line ends themselves stay. */
export const visibleSpace = (text: string) => text.replaceAll(" ", "·").replaceAll("\t", "→\t").replaceAll("\r", "␍").replaceAll("\n", "↵\n").replaceAll("\u00a0", "⍽");

type Excerpt<Part> = { pieces: Part[]; left: number };

/** The beginning of a text in pieces, so that a row of megabytes does not stop the page. */
export function beginning<Part extends { text: string }>(pieces: readonly Part[], most: number): Excerpt<Part> {
  const excerpt: Part[] = [];
  let remaining = most;
  let left = 0;
  for (const piece of pieces) {
    if (remaining > 0) excerpt.push(piece.text.length > remaining ? { ...piece, text: piece.text.slice(0, remaining) } : piece);
    left += Math.max(0, piece.text.length - Math.max(0, remaining));
    remaining -= piece.text.length;
  }
  return { pieces: excerpt, left };
}
