/** Questions that a model writes or wrote: how far it is, what it used, what was rejected. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { continueQuestions, rejectedQuery, stopQuestions } from "@/api/datasets";
import type { Dataset, Questions, RejectedAnswer } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable, PageSteps } from "@/components/data-table";
import { Facts, ProgressBar } from "@/components/figures";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { useAction } from "@/components/toasts";
import { countText, counted } from "@/text/numbers";
import { sourceText } from "./preview-card";

const PAGE = 10;

export function QuestionsCard({ dataset, questions }: { dataset: Dataset; questions: Questions }) {
  const writing = dataset.status === "generating";
  const settled = dataset.status === "ready" || dataset.status === "failed";
  const left = questions.passages - questions.passages_done;
  const { pending, run } = useAction(async (action: (id: string) => Promise<unknown>) => void (await action(dataset.id)));

  return (
    <Card aria-label="Questions" className="mb-3.5">
      <CardHeader title="Questions" note={`${countText(questions.passages_done)} of ${counted(questions.passages, "passage")}`}>
        {writing && (
          <Button size="small" pending={pending} onClick={() => run(stopQuestions)}>
            Stop
          </Button>
        )}
        {settled && left > 0 && (
          <Button size="small" variant="primary" pending={pending} onClick={() => run(continueQuestions)}>
            Continue with {counted(left, "passage")}
          </Button>
        )}
      </CardHeader>
      {writing && (
        <div className="mb-3">
          <p role="status" className="text-dim">
            The model is writing questions. You can leave this page.
          </p>
          <ProgressBar value={dataset.progress} label="Questions written" className="mt-2.5" />
        </div>
      )}
      {questions.end_reason !== null && (
        <Notice tone="attention" className="mb-3">
          {questions.end_reason}
        </Notice>
      )}
      <div className="max-w-2xl">
        <Facts
          facts={[
            ["Model", questions.model],
            ["Endpoint", questions.endpoint ?? "Playground of this server"],
            ["Pairs kept", countText(questions.pairs_kept)],
            ["Rejected", countText(questions.rejected)],
            ["Tokens used", `${countText(questions.tokens)} of at most ${countText(questions.most_tokens)}`],
            [
              "Passages",
              <Link key="passages" to="/datasets/$datasetId" params={{ datasetId: questions.dataset_id }} className="text-violet-soft underline underline-offset-2">
                Show the dataset
              </Link>,
            ],
          ]}
        />
      </div>
      {settled && questions.rejected > 0 && <Rejected dataset={dataset} />}
    </Card>
  );
}

const columns: Column<RejectedAnswer>[] = [
  { header: "Passage", lead: true, cell: ({ source }) => <span className="break-all">{sourceText(source)}</span> },
  { header: "Reason", cell: ({ reason }) => <span className="wrap-anywhere">{reason}</span> },
  { header: "Answer", cell: ({ text }) => (text === "" ? null : <code className="line-clamp-2 font-mono text-xs break-all text-dim">{text}</code>) },
];

function Rejected({ dataset }: { dataset: Dataset }) {
  const [page, setPage] = useState(1);
  const rejected = useQuery(rejectedQuery(dataset, (page - 1) * PAGE, PAGE));
  return (
    <div className="mt-4">
      <h3 className="mb-1.5 text-sm font-[570]">Rejected answers</h3>
      <Loaded query={rejected} skeleton={<SkeletonRows rows={2} />}>
        {({ items, total }) => (
          <>
            <DataTable label="Rejected answers" columns={columns} rows={items} rowKey={(one) => `${one.source.file}-${one.source.passage}-${one.text}-${one.reason}`} />
            <PageSteps page={page} pageSize={PAGE} total={total} onTurn={setPage} />
          </>
        )}
      </Loaded>
    </div>
  );
}
