/** The page that runs a script: files, requirements, offer, and the submission. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { Download } from "lucide-react";
import { type ComponentProps, useEffect, useMemo, useState } from "react";
import { jobQuery } from "@/api/jobs";
import { ApiProblem, sentenceOf } from "@/api/problem";
import { colabNotebook, type Evidence, type NewScriptJob, quoteScript, type Requirements, type ScriptQuote, type ScriptTemplate, startScript, uploadedFilesQuery } from "@/api/scripts";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/dialog";
import { Input, Select } from "@/components/input";
import { Loaded, LoadFailure, SkeletonRows } from "@/components/loaded";
import { FailureNotice } from "@/components/notice";
import { toast, toastFailure, useAction } from "@/components/toasts";
import { Field } from "@/forms/field";
import { useProjectOptions } from "@/forms/project-options";
import { JobKindLinks, NewJobCrumbs } from "@/pages/new-job/new-job-header";
import { FailoverFields } from "@/pages/offers/failover-fields";
import { OfferPicker } from "@/pages/offers/offer-picker";
import { LOCAL, missingConnection, type OfferSelection, useOfferSelection } from "@/pages/offers/offer-selection";
import { PageHeader, usePageTitle } from "@/shell/page";
import { useCurrentUser } from "@/shell/session";
import { counted } from "@/text/numbers";
import type { Jump } from "./code-editor";
import { FilesCard } from "./files-card";
import { markedLines, NeedsCard, useNeeds, withOverrides } from "./needs-card";
import { QuoteDialog } from "./quote-dialog";
import { type Draft, type DraftMistakes, forgetDraft, fromJob, fromTemplate, jobBody, mistakesIn, scriptRequest, useDraft } from "./script-draft";
import { fileFrom } from "./script-files";

const route = getRouteApi("/app/script");

/** A person's own script, on this machine or a rented one. */
export function ScriptPage() {
  usePageTitle("Run a script");
  const { like, project } = route.useSearch();
  return like === undefined ? <ScriptForm project={project} /> : <LikeEarlier id={like} />;
}

/** Puts the files and settings of an earlier job into the draft, then shows the form. */
function LikeEarlier({ id }: { id: string }) {
  const [draft, change] = useDraft();
  const navigate = useNavigate();
  const job = useQuery(jobQuery(id));
  const files = useQuery(uploadedFilesQuery(id));
  const isEmpty = draft.files.length === 0;
  const show = () => void navigate({ to: "/script", search: {}, replace: true });

  function take() {
    if (!job.data || !files.data) return;
    const { items, changed } = files.data;
    change(fromJob(draft, job.data, items.map(fileFrom)));
    if (changed.length > 0) toastFailure(`The script changed these files; add them again: ${changed.join(", ")}`);
    show();
  }

  useEffect(() => {
    if (isEmpty) take();
    // oxlint-disable-next-line react/exhaustive-deps -- once, when both are there
  }, [job.data, files.data]);

  return (
    <Loaded<unknown> query={job.data === undefined ? job : files} skeleton={<SkeletonRows />}>
      {() =>
        !isEmpty && (
          <ConfirmDialog open onOpenChange={(open) => !open && show()} title="Replace your draft?" action="Replace draft" dismiss="Keep draft" onConfirm={async () => take()}>
            The form holds a script that you have not started: {draft.entry ?? counted(draft.files.length, "file")}.
          </ConfirmDialog>
        )
      }
    </Loaded>
  );
}

function ScriptForm({ project }: { project: string | undefined }) {
  const [draft, change] = useDraft();
  const [jump, setJump] = useState<Jump | null>(null);
  const needs = useNeeds(draft);
  const offersRequest = useMemo(() => needs.requirements && { requirements: withOverrides(needs.requirements, draft.overrides) }, [needs.requirements, draft.overrides]);
  const selection = useOfferSelection(offersRequest, draft.offer, (picked) => change((before) => ({ ...before, offer: { ...before.offer, picked } })));
  const { submit, pending, failures, mistakes, quoted, dismiss } = useSubmit(draft, selection);

  useEffect(() => {
    if (project) change((before) => ({ ...before, project }));
    // Only where the link says so: afterwards it is the person's choice.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [project]);

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
      <FailureNotice failures={failures} />
      <div className="grid items-start gap-3.5 lg:grid-cols-[minmax(0,1fr)_minmax(0,22rem)] lg:gap-x-4.5">
        <FilesCard draft={draft} onChange={change} onTemplate={take} marked={markedLines(needs.requirements, draft.active, draft.entry)} jump={jump} mistake={mistakes.files} />
        <div className="lg:sticky lg:top-5 lg:col-start-2 lg:row-span-4 lg:row-start-1 lg:max-h-[calc(100dvh-2.5rem)] lg:overflow-y-auto">
          <NeedsCard needs={needs} overrides={draft.overrides} mistakes={mistakes} onOverride={(changes) => change((before) => ({ ...before, overrides: { ...before.overrides, ...changes } }))} onShow={show} />
        </div>
        {draft.files.length > 0 && (
          <>
            <Card>
              <CardHeader title="Where to run" note="prices are estimates, in US dollars" />
              <OfferPicker selection={selection} memoryGb={memoryOf(offersRequest?.requirements)} back="/script" waiting="Offers appear here when the requirements of the script are known." instead={{ colab: <NotebookButton draft={draft} /> }} />
              <div className="mt-3">
                <FailoverFields selection={selection} failover={draft.failover} onChange={(failover) => change((before) => ({ ...before, failover }))} />
              </div>
              <LocalChoices selection={selection} draft={draft} onChange={(changes) => change((before) => ({ ...before, ...changes }))} />
            </Card>
            <RunCard draft={draft} limits={selection.limits} packages={needs.requirements?.packages.map(({ value }) => value) ?? []} mistakes={mistakes} onChange={(changes) => change((before) => ({ ...before, ...changes }))} />
            {/* The button at the top has long scrolled away when the form is filled in. */}
            <StartButton size="large" pending={pending} className="sm:justify-self-end lg:col-start-1" />
          </>
        )}
      </div>
      {quoted && <QuoteDialog quote={quoted.quote} onStart={quoted.start} onClose={dismiss} />}
    </form>
  );
}

/** What the job asks of one GPU; null where it needs none, or nobody knows yet. */
const memoryOf = (needs: Requirements | undefined) => (needs?.reference_gpu ? needs.gpu_memory_gb.value : null);

function StartButton(props: ComponentProps<typeof Button>) {
  return (
    <Button type="submit" variant="primary" {...props}>
      Start the job
    </Button>
  );
}

/** Everything that was wrong with a request, in sentences. */
function sentencesOf(error: unknown): string[] {
  if (!(error instanceof ApiProblem) || error.fieldErrors.length === 0) return [sentenceOf(error)];
  return error.fieldErrors.map(({ field, message }) => (field === "" || field === "code" ? message : `${field.replaceAll("_", " ")}: ${message}`));
}

export function useSubmit(draft: Draft, selection: OfferSelection) {
  const navigate = useNavigate();
  const [pending, setPending] = useState(false);
  const [tried, setTried] = useState(false);
  const [failures, setFailures] = useState<string[]>([]);
  // What was quoted is what is started, although the offers may change while somebody reads the quote.
  const [quoted, setQuoted] = useState<{ quote: ScriptQuote; start: () => Promise<void> } | null>(null);
  const mistakes = mistakesIn(draft);

  async function start(body: NewScriptJob) {
    const { job_id: jobId } = await startScript(body);
    forgetDraft();
    toast("The job is queued.");
    await navigate({ to: "/jobs/$jobId", params: { jobId } });
  }

  /** Here a job starts at once. What costs money says how much first. */
  async function submit() {
    setTried(true);
    if (Object.keys(mistakes).length > 0) return setFailures([]);
    const missing = missingConnection(selection);
    if (missing) return setFailures([missing]);
    setPending(true);
    setFailures([]);
    try {
      const body = jobBody(draft, selection.choice);
      if (selection.choice === null) await start(body);
      else setQuoted({ quote: await quoteScript(body), start: () => start(body) });
    } catch (error) {
      setFailures(sentencesOf(error));
    } finally {
      setPending(false);
    }
  }

  return { submit, pending, failures, quoted, dismiss: () => setQuoted(null), mistakes: tried ? mistakes : withoutFiles(mistakes) };
}

/** That nothing is there yet is no mistake before somebody wants to start. */
const withoutFiles = (mistakes: DraftMistakes): DraftMistakes => ({ ...mistakes, files: undefined });

type TextName = "arguments" | "datasets" | "packages" | "name" | "budget" | "maxHours";

const isChecked = (name: TextName) => name === "arguments" || name === "budget" || name === "maxHours";

type RunCardProps = { draft: Draft; limits: OfferSelection["limits"]; packages: readonly string[]; mistakes: DraftMistakes; onChange: (change: Partial<Draft>) => void };

/** How the job is started and named, and where its bill ends. */
function RunCard({ draft, limits, packages, mistakes, onChange }: RunCardProps) {
  const projects = useProjectOptions(draft.project);
  const options = [["", "Scripts"] as const, ...projects.options];
  const text = (name: TextName, given: { label: string; placeholder?: string; help?: string; numeric?: boolean; wide?: boolean }) => (
    <Field label={given.label} optional error={isChecked(name) ? mistakes[name] : undefined} help={given.help} className={given.wide ? "sm:col-span-2" : undefined}>
      {(control) => (
        <Input
          {...control}
          value={draft[name]}
          placeholder={given.placeholder}
          autoComplete="off"
          spellCheck={false}
          inputMode={given.numeric ? "decimal" : undefined}
          onChange={(event) => onChange({ [name]: event.target.value })}
        />
      )}
    </Field>
  );
  return (
    <Card>
      <CardHeader title="Run" />
      <div className="grid gap-3.5 sm:grid-cols-2">
        {text("arguments", { label: "Arguments", placeholder: "--batch_size=12 --max_iters=2000", help: "Command-line arguments for the script.", wide: true })}
        {text("name", { label: "Job name", placeholder: "the script’s name" })}
        <div className="grid content-start gap-2">
          <Field label="Project">{(control) => <Select {...control} value={draft.project} options={options} onChange={(event) => onChange({ project: event.target.value })} />}</Field>
          <LoadFailure query={projects.query} />
        </div>
        {text("budget", { label: "Budget, in US dollars", placeholder: limits ? (limits.budget?.toFixed(2) ?? "free") : "for rented machines only", numeric: true, help: "If empty, twice the estimate. At this amount the script gets SIGTERM, so that it can save a checkpoint, and the job stops. You get warnings at 50 % and 80 %." })}
        {text("maxHours", { label: "Time limit, in hours", placeholder: limits ? String(limits.max_hours) : "for rented machines only", numeric: true, help: "If empty, twice the estimate. After this time the script gets SIGTERM, so that it can save a checkpoint, and the job stops." })}
        {text("packages", { label: "Packages", placeholder: packages.join(", ") || "none", help: "Packages that pip installs on a rented instance. If empty, the detected packages are installed." })}
        {text("datasets", { label: "Datasets", placeholder: "shakespeare, s3://bucket/corpus/", help: "Well-known names, or https://, hf://, s3:// and gs:// addresses. Each is placed next to the script, in data/NAME; an address by its last part." })}
      </div>
    </Card>
  );
}

type LocalChoicesProps = { selection: OfferSelection; draft: Draft; onChange: (change: Partial<Draft>) => void };

/** On this machine a script runs shut in; only an admin can let it out. */
function LocalChoices({ selection, draft, onChange }: LocalChoicesProps) {
  const user = useCurrentUser();
  if (selection.chosen !== LOCAL) return null;
  return (
    <div className="mt-3 grid gap-2 border-t border-line pt-3 text-sm">
      <p className="text-dim">On this server the script runs in a sandbox: it sees only its own folder and has no network.</p>
      {user.role === "admin" && (
        <>
          <Choice checked={draft.network} onChange={(network) => onChange({ network })} text="Allow network access. The script can then reach everything that this machine can reach." />
          <Choice checked={draft.confirmed} onChange={(confirmed) => onChange({ confirmed })} text="Run without a sandbox if none is available. The script then has all the rights of the server." />
        </>
      )}
    </div>
  );
}

function Choice({ checked, onChange, text }: { checked: boolean; onChange: (checked: boolean) => void; text: string }) {
  return (
    <label className="flex items-start gap-2.5 max-sm:py-1">
      <input type="checkbox" checked={checked} onChange={(event) => onChange(event.target.checked)} className="mt-0.5 size-4 shrink-0 accent-violet" />
      {text}
    </label>
  );
}

/** Colab runs what somebody opens there: the script as a notebook, to take along. */
function NotebookButton({ draft }: { draft: Draft }) {
  const { pending, run } = useAction(async () => {
    const request = scriptRequest(draft);
    if (request === null || draft.entry === null) return;
    const notebook = await colabNotebook({ ...request, entry: draft.entry, name: draft.name.trim() || null });
    save(notebook, `${(draft.name.trim() || "script").replaceAll(/[^\w-]+/g, "-")}.ipynb`);
    toast("Notebook downloaded. Open it in Colab and run its cells from the top.");
  });

  return (
    <Button size="small" pending={pending} onClick={run}>
      <Download aria-hidden />
      Download the notebook
    </Button>
  );
}

function save(text: string, name: string) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/x-ipynb+json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}
