/** The documents behind a dataset: what each gave, another length of passages, and questions about them. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { cutAgain, documentsQuery } from "@/api/datasets";
import type { Dataset, DocumentFile, Documents } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable, PageSteps } from "@/components/data-table";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { z } from "@/forms/zod";
import { countText, counted, sentence } from "@/text/numbers";
import { DOCUMENT_LENGTH } from "./documents-dialog";
import { QuestionsButton } from "./questions-dialog";

const PAGE = 10;

const columns: Column<DocumentFile>[] = [
  { header: "Document", lead: true, cell: (one) => <span className="break-all">{one.file}</span> },
  { header: "Result", cell: (one) => <Result document={one} /> },
  { header: "Pages", end: true, cell: ({ pages }) => (pages === null ? null : countText(pages)) },
  { header: "Passages", end: true, cell: ({ passages }) => (passages === 0 ? null : countText(passages)) },
];

function Result({ document: { problem, notes } }: { document: DocumentFile }) {
  if (problem !== null) return <span className="wrap-anywhere text-danger-soft">{sentence(`The document ${problem}`)}</span>;
  return <span className={notes.length > 0 ? "wrap-anywhere text-warning" : "text-dim"}>{notes.length > 0 ? notes.join(" ") : "read"}</span>;
}

export function DocumentsCard({ dataset, documents }: { dataset: Dataset; documents: Documents }) {
  const [page, setPage] = useState(1);
  const [cutting, setCutting] = useState(false);
  const list = useQuery(documentsQuery(dataset, (page - 1) * PAGE, PAGE));
  const ready = dataset.status === "ready";
  return (
    <Card aria-label="Documents" className="mb-3.5">
      <CardHeader title="Documents" note={summary(documents)}>
        <div className="flex flex-wrap gap-2">
          {(ready || dataset.status === "failed") && (
            <Button size="small" onClick={() => setCutting(!cutting)} aria-expanded={cutting}>
              Change passage length
            </Button>
          )}
          {ready && <QuestionsButton dataset={dataset} passages={documents.passages} />}
        </div>
      </CardHeader>
      {cutting && <CutForm dataset={dataset} documents={documents} onDone={() => setCutting(false)} />}
      <Loaded query={list} skeleton={<SkeletonRows rows={3} />}>
        {({ items, total }) => (
          <>
            <DataTable label="Documents" columns={columns} rows={items} rowKey={({ file }) => file} />
            <PageSteps page={page} pageSize={PAGE} total={total} onTurn={setPage} />
          </>
        )}
      </Loaded>
    </Card>
  );
}

function summary({ files, problems, passages, pages, passage_characters: length }: Documents) {
  return [
    counted(files, "document"),
    pages > 0 && counted(pages, "page"),
    `${counted(passages, "passage")} of at most ${countText(length)} characters`,
    problems > 0 && `${counted(problems, "document")} without text`,
  ]
    .filter(Boolean)
    .join(" · ");
}

const rules = z.object({ passage_characters: DOCUMENT_LENGTH });

function CutForm({ dataset, documents, onDone }: { dataset: Dataset; documents: Documents; onDone: () => void }) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { passage_characters: String(documents.passage_characters) },
    submit: async ({ passage_characters: length }) => {
      await cutAgain(dataset.id, length);
      onDone();
    },
  });
  return (
    <div className="mb-3.5 max-w-md">
      <ApiForm label="Change passage length" failure={failure} onSubmit={onSubmit}>
        <TextField label="Passage length" inputMode="numeric" help="The documents are cut again. The rows of this dataset are replaced." {...field("passage_characters")} />
        <div className="flex gap-2">
          <Button type="submit" variant="primary" size="small" pending={isSubmitting}>
            Cut again
          </Button>
          <Button size="small" onClick={onDone}>
            Cancel
          </Button>
        </div>
      </ApiForm>
    </div>
  );
}
