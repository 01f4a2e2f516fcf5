/** The pre-flight: what the job would train on, counted before it starts. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { preflightQuery } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import type { FilePreflight, PlanRequest, Preflight } from "@/api/types";
import { Accordion, isWide } from "@/components/accordion";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/components/figures";
import { useDebounced } from "@/components/input";
import { SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { counted, countText, settingText, shareText } from "@/text/numbers";

const PAUSE = 800;

type PreflightCardProps = { request: PlanRequest; complete: boolean; missing: string | null };

/** Counts again when the form rests. The plan beside it is asked again with the counts. */
export function PreflightCard({ request, complete, missing }: PreflightCardProps) {
  const wanted = JSON.stringify(request);
  const settled = useDebounced(wanted, PAUSE);
  const found = useQuery({ ...preflightQuery(JSON.parse(settled) as PlanRequest), enabled: complete });
  const client = useQueryClient();
  const { dataUpdatedAt } = found;
  useEffect(() => {
    if (dataUpdatedAt > 0) void client.invalidateQueries({ queryKey: ["plan"] });
  }, [client, dataUpdatedAt]);
  const busy = complete && (found.isFetching || settled !== wanted);

  return (
    <Card aria-label="Pre-flight" aria-busy={busy}>
      <CardHeader title="Pre-flight" note={busy ? "counting…" : "what the model trains on"} />
      {!complete ? (
        <p className="text-sm text-dim">{missing ?? "Correct the config first."}</p>
      ) : found.isError && !busy ? (
        <Notice tone="bad" role="alert">
          {sentenceOf(found.error)}
        </Notice>
      ) : found.data ? (
        <Counts found={found.data} />
      ) : (
        <SkeletonRows rows={4} />
      )}
    </Card>
  );
}

function Counts({ found }: { found: Preflight }) {
  const [open, setOpen] = useState(isWide);
  const { train, train_file: file, eval: held, eval_file: evalFile } = found;
  const files = [file, ...found.mixed_files];
  const sum = (count: (file: FilePreflight) => number) => countText(files.reduce((all, each) => all + count(each), 0));
  const facts = [
    ["Rows used", `${sum(({ used }) => used)} of ${sum(({ rows }) => rows)}`],
    ["Steps", countText(found.steps)],
    ["Training tokens", `${countText(train.tokens)} (${countText(train.trained_tokens)} in the loss)`],
    ["Sequences", `${countText(train.sequences)} × ${counted(found.sequence_length, "token")}`],
    ["Truncated examples", shareText(found.truncated_share)],
    [evalFile ? "Validation rows" : "Held-out rows", held ? countText(held.examples) : "none"],
    ["Duplicates", countText(found.duplicates)],
    ["Longest example", counted(train.longest, "token")],
  ] as const;
  const [rows, steps] = facts;
  return (
    <div className="grid gap-3">
      <Accordion title="Counts" summary={open ? undefined : `${rows[1]} rows · ${steps[1]} steps`} open={open} onToggle={setOpen} className="border-t-0 [&>summary]:pt-0">
        <Facts facts={facts} />
      </Accordion>
      {files.length > 1 && (
        <section aria-label="Mix" className="text-sm">
          <h3 className="mb-1.5 text-xs text-dim">What an epoch trains</h3>
          <Facts facts={files.map(({ name, weight, train_examples, train_tokens }) => [name, `${counted(train_examples, "example")} (weight ${settingText(weight)}), ${shareText(train_tokens / train.tokens)} of the tokens`] as const)} />
        </section>
      )}
      {found.findings.length > 0 ? (
        <ul aria-label="Findings" className="grid gap-2">
          {found.findings.map(({ kind, severity, title, sentence, next_step }) => (
            <li key={`${kind} ${sentence}`}>
              <Notice tone={severity === "critical" ? "bad" : severity === "warning" ? "attention" : "plain"} className="wrap-anywhere">
                <b className="mr-2 font-[570]">{title}.</b>
                <span className="text-dim">{`${sentence} ${next_step}`.trimEnd()}</span>
              </Notice>
            </li>
          ))}
        </ul>
      ) : (
        <p className="text-sm text-dim">Nothing to report: every row is used.</p>
      )}
    </div>
  );
}
