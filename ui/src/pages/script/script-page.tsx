import { getRouteApi } from "@tanstack/react-router";
import { type ComponentProps, useEffect, useMemo, useRef, useState } from "react";
import type { ScriptTemplate } from "@/api/ml-jobs";
import type { Evidence, Requirements } from "@/api/scripts";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Notice } from "@/components/notice";
import { JobKindLinks } from "@/pages/new-job/job-kind-links";
import { NewJobCrumbs } from "@/pages/new-job/new-job-crumbs";
import { OfferPicker } from "@/pages/offers/offer-picker";
import { useOfferSelection } from "@/pages/offers/use-offer-selection";
import { PageHeader } from "@/shell/page-header";
import { usePageTitle } from "@/shell/use-page-title";
import type { Jump } from "./code-editor";
import { FilesCard } from "./files-card";
import { useDraft } from "./saved-draft";
import { LocalChoices } from "./local-choices";
import { markedLines } from "./need-words";
import { NeedsCard } from "./needs-card";
import { NotebookButton } from "./notebook-button";
import { QuoteDialog } from "./quote-dialog";
import { RunCard } from "./run-card";
import { fromTemplate } from "./script-draft";
import { withOverrides, useNeeds } from "./use-needs";
import { useSubmit } from "./use-submit";

const route = getRouteApi("/app/script");

/** A person's own script, on this machine or a rented one. */
export function ScriptPage() {
  usePageTitle("Run a script");
  const { project } = route.useSearch();
  const [draft, change] = useDraft();
  const [jump, setJump] = useState<Jump | null>(null);
  const needs = useNeeds(draft);
  const offersRequest = useMemo(() => needs.requirements && { requirements: withOverrides(needs.requirements, draft.overrides) }, [needs.requirements, draft.overrides]);
  const selection = useOfferSelection(offersRequest, draft.offer, (picked) => change((before) => ({ ...before, offer: { ...before.offer, picked } })));
  const { submit, start, pending, failures, mistakes, quote, dismiss } = useSubmit(draft, selection);
  const complaints = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (project) change((before) => ({ ...before, project }));
    // Only where the link says so: afterwards it is the person's choice.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [project]);

  useEffect(() => {
    if (failures.length > 0) complaints.current?.focus();
  }, [failures]);

  const take = (template: ScriptTemplate) => change((before) => fromTemplate(before, template));

  function show({ line, file }: Evidence) {
    change((before) => ({ ...before, active: file ?? before.entry }));
    setJump((before) => ({ line, count: (before?.count ?? 0) + 1 }));
  }

  return (
    <form
      noValidate
      aria-label="Run a script"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <PageHeader title="Run a script" crumbs={<NewJobCrumbs />}>
        <StartButton pending={pending} />
      </PageHeader>
      <JobKindLinks projectId={project} />
      {failures.length > 0 && (
        <Notice ref={complaints} tabIndex={-1} tone="bad" role="alert" className="mb-3.5 grid gap-1 break-words">
          {failures.map((failure) => (
            <p key={failure}>{failure}</p>
          ))}
        </Notice>
      )}
      <div className="grid items-start gap-3.5 lg:grid-cols-[minmax(0,1fr)_minmax(0,22rem)] lg:gap-x-4.5">
        <FilesCard draft={draft} onChange={change} onTemplate={take} marked={markedLines(needs.requirements, draft.active, draft.entry)} jump={jump} mistake={mistakes.files} />
        <div className="lg:sticky lg:top-5 lg:col-start-2 lg:row-span-4 lg:row-start-1 lg:max-h-[calc(100dvh-2.5rem)] lg:overflow-y-auto">
          <NeedsCard needs={needs} overrides={draft.overrides} mistakes={mistakes} onOverride={(changes) => change((before) => ({ ...before, overrides: { ...before.overrides, ...changes } }))} onShow={show} />
        </div>
        {draft.files.length > 0 && (
          <>
            <Card>
              <CardHeader title="Where to run" note="prices are estimates, in US dollars" />
              <OfferPicker selection={selection} memoryGb={memoryOf(offersRequest?.requirements)} back="/script" waiting="Offers follow once the script can be read." instead={{ colab: <NotebookButton draft={draft} /> }} />
              <LocalChoices selection={selection} draft={draft} onChange={(changes) => change((before) => ({ ...before, ...changes }))} />
            </Card>
            <RunCard draft={draft} packages={needs.requirements?.packages.map(({ value }) => value) ?? []} mistakes={mistakes} onChange={(changes) => change((before) => ({ ...before, ...changes }))} />
            {/* The button at the top has long scrolled away when the form is filled in. */}
            <StartButton size="large" pending={pending} className="sm:justify-self-end lg:col-start-1" />
          </>
        )}
      </div>
      {quote && <QuoteDialog quote={quote} draft={draft} onStart={start} onClose={dismiss} />}
    </form>
  );
}

/** What the job asks of one GPU; null where it needs none, or nobody knows yet. */
const memoryOf = (needs: Requirements | undefined) => (needs?.referenceGpu ? needs.gpuMemoryGb.value : null);

function StartButton(props: ComponentProps<typeof Button>) {
  return (
    <Button type="submit" variant="primary" {...props}>
      Start the job
    </Button>
  );
}
