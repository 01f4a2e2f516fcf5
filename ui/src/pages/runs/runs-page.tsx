/** Every run in one list: jobs of this server, rented machines, and runs that were sent from anywhere. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Activity, Bookmark, Columns3, SearchX, Trash2 } from "lucide-react";
import { lazy, Suspense, useCallback, useDeferredValue, useMemo, useState } from "react";
import { ApiProblem, sentenceOf } from "@/api/problem";
import { ViewIn } from "@/api/request-fields";
import { changeRunView, createRunView, deleteRunView, runsQuery, runViewsQuery } from "@/api/runs";
import type { RunList, RunRow, RunView, RunViewBody } from "@/api/types";
import { Button, CopyButton } from "@/components/button";
import { Card } from "@/components/card";
import { cn } from "@/components/class-names";
import { EmptyState, Loaded, SkeletonRows, Updating } from "@/components/loaded";
import { TimeAgo } from "@/components/time-ago";
import { toastFailure } from "@/components/toasts";
import { DemoButton, NewJobLink } from "@/pages/jobs/new-job-link";
import type { RunsSearch } from "@/shell/address";
import { PageHeader, usePageTitle } from "@/shell/page";
import { useFolder } from "@/shell/session";
import { counted } from "@/text/numbers";
import { FilterField } from "./filter-field";
import { ColumnsDialog, LabelsDialog, ViewNameDialog } from "./run-dialogs";
import { RunTable } from "./run-table";
import { sourceText } from "./run-words";

const ComparePanel = lazy(() => import("./compare-panel"));

const route = getRouteApi("/app/runs");
const PAGE = 100;
const DEFAULT_GROUP = ViewIn.group.default.join(",");
const DEFAULT_SORT = ViewIn.sort.default;
const QUIET_SECONDS = 600;

/** Views that everybody has. */
const BUILT_IN = [
  { id: "all", name: "All runs", query: "" },
  { id: "running", name: "Running", query: "status in (queued, provisioning, running, pausing, cancelling)" },
  { id: "failed", name: "Failed", query: "status = failed" },
] as const;

const listed = (text: string | undefined) => (text === undefined ? undefined : text.split(",").filter(Boolean));

export function RunsPage() {
  usePageTitle("Runs");
  const search = route.useSearch();
  const navigate = useNavigate({ from: "/runs" });
  const [limit, setLimit] = useState(PAGE);
  const { query = "", group = DEFAULT_GROUP, sort = DEFAULT_SORT, source } = search;
  const columns = listed(search.columns);
  const runs = useQuery(runsQuery({ query, column: columns, group: listed(group)?.length ? listed(group) : [""], sort, source, limit }));
  // What is wrong with a filter is said under it, and the rows of the last one that could be read stay.
  const [list, setList] = useState(runs.data);
  if (runs.data && runs.data !== list) setList(runs.data);
  const change = useCallback((next: Partial<RunsSearch>) => void navigate({ search: (kept) => ({ ...kept, ...next }), replace: true }), [navigate]);
  const setQuery = useCallback((text: string) => change({ query: text || undefined, source: undefined }), [change]);
  const problem = runs.error instanceof ApiProblem && runs.error.fieldErrors.some(({ field }) => field === "query") ? runs.error.message : null;
  const nothingYet = list?.total === 0;
  const folder = useFolder();

  return (
    <>
      <PageHeader title="Runs" note={list && !nothingYet ? totalText(list) : undefined}>
        {!nothingYet && folder === null && <NewJobLink />}
      </PageHeader>
      {nothingYet ? (
        folder === null ? <FirstRun /> : <EmptyFolder folder={folder} />
      ) : (
        <>
          <ViewsBar search={search} list={list} onChoose={(next) => void navigate({ search: next, replace: true })} />
          <Card className="mt-3 mb-3.5">
            <FilterBar text={query} onQuery={setQuery} list={list} problem={problem} columns={columns} group={listed(group) ?? []} onChange={change} />
            {list && list.sources.length > 1 && <Sources list={list} chosen={source} onChoose={(name) => change({ source: name })} />}
          </Card>
          {(problem === null || list) && (
            <Loaded query={problem === null ? runs : { ...runs, data: list }} skeleton={<SkeletonRows rows={8} className="mt-4 h-9" />}>
              {(data) => <Rows list={data} search={search} sort={sort} pending={runs.isPlaceholderData} onChange={change} onMore={data.rows > limit ? () => setLimit(limit + PAGE) : undefined} />}
            </Loaded>
          )}
        </>
      )}
    </>
  );
}

function totalText(list: RunList): string {
  const found = list.matched === list.total ? counted(list.total, "run") : `${list.matched} of ${counted(list.total, "run")}`;
  return list.sources.length > 1 ? `${found}, from ${list.sources.length} sources` : found;
}

const SHELL_SNIPPET = `export BLOOM_SERVER=${typeof window === "undefined" ? "" : window.location.origin}
export BLOOM_TOKEN=…`;

const SCRIPT_SNIPPET = `from gpubloom.traincard import Reporter
with Reporter(project="My project") as reporter:
    reporter.metrics({"train/loss": loss}, step=step)`;

const FOLDER_SNIPPET = `from gpubloom.traincard import Reporter
with Reporter("runs/first") as reporter:
    reporter.metrics({"train/loss": loss}, step=step)`;

function EmptyFolder({ folder }: { folder: string }) {
  return (
    <Card>
      <EmptyState wholePage icon={Activity} title="No runs in this folder.">
        {folder} has no run directory. Record a run below it; it appears here while it happens:
        <Snippet title="In your script" text={FOLDER_SNIPPET} />
      </EmptyState>
    </Card>
  );
}

function Snippet({ title, text }: { title: string; text: string }) {
  return (
    <section aria-label={title} className="mt-3 text-left">
      <div className="mb-1 flex items-end justify-between gap-3">
        <h2 className="text-xs text-dim">{title}</h2>
        <CopyButton text={text} label={`Copy: ${title}`} />
      </div>
      <pre className="max-w-full wrap-anywhere whitespace-pre-wrap rounded-control border border-line bg-rail p-3 font-mono text-xs text-text">{text}</pre>
    </section>
  );
}

function FirstRun() {
  return (
    <Card>
      <EmptyState
        icon={Activity}
        title="No runs yet."
        action={
          <div className="flex flex-wrap justify-center gap-2">
            <NewJobLink />
            <DemoButton variant="outline" />
          </div>
        }
      >
        Start a training job here, or send a run from any machine, with an{" "}
        <Link to="/settings" search={{ tab: "tokens" }} className="text-violet-soft underline decoration-violet-soft/50 underline-offset-3">
          API token
        </Link>{" "}
        of scope write:
        <Snippet title="In the shell" text={SHELL_SNIPPET} />
        <Snippet title="In your script" text={SCRIPT_SNIPPET} />
      </EmptyState>
    </Card>
  );
}

type FilterBarProps = { text: string; onQuery: (text: string) => void; list: RunList | undefined; problem: string | null; columns: string[] | undefined; group: string[]; onChange: (next: Partial<RunsSearch>) => void };

function FilterBar({ text, onQuery, list, problem, columns, group, onChange }: FilterBarProps) {
  const [choosing, setChoosing] = useState(false);
  const offered = useMemo(() => ["status", "created", "project", "tag", "cost", "time", ...(list?.config_columns ?? []).slice(0, 40), ...(list?.metric_columns ?? []).slice(0, 40)], [list?.config_columns, list?.metric_columns]);
  return (
    <div className="flex items-start gap-2.5">
      <FilterField text={text} onChange={onQuery} found={list ? counted(list.matched, "run") : ""} problem={problem} columns={offered} />
      <Button className="h-9.5 max-sm:w-11 max-sm:px-0" onClick={() => setChoosing(true)}>
        <Columns3 aria-hidden />
        <span className="max-sm:sr-only">Columns and grouping</span>
      </Button>
      {choosing && list && (
        <ColumnsDialog
          list={list}
          columns={columns ?? list.columns}
          group={group}
          onClose={() => setChoosing(false)}
          onChange={(chosen, grouped) => {
            setChoosing(false);
            onChange({ columns: chosen.join(",") || undefined, group: grouped.join(",") === DEFAULT_GROUP ? undefined : grouped.join(",") });
          }}
        />
      )}
    </div>
  );
}

const chip = "inline-flex h-7 items-center gap-1.5 rounded-full border border-line-strong px-2.5 text-sm whitespace-nowrap text-dim hover:border-white/25 hover:text-text aria-pressed:border-violet-soft/45 aria-pressed:bg-violet/18 aria-pressed:text-white max-sm:h-9";

/** Where the runs come from; one that has not been heard from says since when. */
function Sources({ list, chosen, onChoose }: { list: RunList; chosen: string | undefined; onChoose: (name: string | undefined) => void }) {
  const total = list.sources.reduce((sum, source) => sum + source.runs, 0);
  // Of the newest source, not of this machine's clock: two clocks may differ.
  const now = Math.max(...list.sources.map((source) => source.seen ?? 0));
  return (
    <div role="group" aria-label="Source" className="-mx-4 mt-2.5 flex gap-1.5 overflow-x-auto px-4 pb-0.5">
      <button type="button" className={chip} aria-pressed={chosen === undefined} onClick={() => onChoose(undefined)}>
        All sources <small>{total}</small>
      </button>
      {list.sources.map((source) => (
        <button key={source.name} type="button" className={chip} aria-pressed={chosen === source.name} onClick={() => onChoose(source.name)}>
          {sourceText(source.name)} <small>{source.runs}</small>
          {source.seen !== null && list.statuses.running && now - source.seen > QUIET_SECONDS && (
            <small className="text-warning">
              seen <TimeAgo at={new Date(source.seen * 1000).toISOString()} />
            </small>
          )}
        </button>
      ))}
    </div>
  );
}

const viewOf = (search: RunsSearch, list: RunList | undefined): Omit<RunViewBody, "name"> => ({
  query: search.query ?? "",
  columns: listed(search.columns) ?? list?.columns ?? [],
  group: listed(search.group ?? DEFAULT_GROUP) ?? [],
  sort: search.sort ?? DEFAULT_SORT,
});

const searchOf = (view: RunView): RunsSearch => ({
  view: view.id,
  query: view.query || undefined,
  columns: view.columns.join(",") || undefined,
  group: view.group.join(",") === DEFAULT_GROUP ? undefined : view.group.join(","),
  sort: view.sort === DEFAULT_SORT ? undefined : view.sort,
});

const isSame = (one: RunsSearch, other: RunsSearch) => (["query", "columns", "group", "sort"] as const).every((name) => one[name] === other[name]);

const attempt = (work: Promise<unknown>) => void work.catch((error: unknown) => toastFailure(`The view was not changed. ${sentenceOf(error)}`));

type ViewsBarProps = { search: RunsSearch; list: RunList | undefined; onChoose: (search: RunsSearch) => void };

function ViewsBar({ search, list, onChoose }: ViewsBarProps) {
  const views = useQuery(runViewsQuery);
  const [naming, setNaming] = useState(false);
  const saved = views.data?.find((view) => view.id === search.view);
  const edited = saved !== undefined && !isSame(searchOf(saved), search);
  const builtIn = saved ? undefined : BUILT_IN.find(({ query }) => isSame({ query: query || undefined }, search));

  const tab = "inline-flex items-center gap-1.75 rounded-lg px-3.5 py-1.25 whitespace-nowrap text-dim hover:text-text aria-[current]:bg-raised aria-[current]:text-white max-sm:px-2.5 max-sm:py-2 max-sm:text-sm";
  return (
    <div className="flex items-center justify-between gap-3 max-sm:flex-col max-sm:items-stretch max-sm:gap-1">
      <nav aria-label="Views" className="-mx-1 min-w-0 overflow-x-auto p-1">
        <div className="flex w-max gap-1 rounded-[10px] border border-line bg-rail p-[3px]">
          {BUILT_IN.map(({ id, name, query }) => (
            <button key={id} type="button" className={tab} aria-current={builtIn?.id === id ? "true" : undefined} onClick={() => onChoose({ query: query || undefined })}>
              {name}
            </button>
          ))}
          {views.data?.map((view) => (
            <button key={view.id} type="button" className={tab} aria-current={saved?.id === view.id ? "true" : undefined} onClick={() => onChoose(searchOf(view))}>
              {view.name}
              {saved?.id === view.id && edited && <small className="text-2xs text-violet-soft">edited</small>}
            </button>
          ))}
        </div>
      </nav>
      <div className="flex shrink-0 justify-end gap-1">
        {saved && edited && (
          <Button variant="ghost" size="small" onClick={() => attempt(changeRunView(saved.id, { name: saved.name, ...viewOf(search, list) }))}>
            <Bookmark aria-hidden />
            Save view
          </Button>
        )}
        {builtIn === undefined && (
          <Button variant="ghost" size="small" onClick={() => setNaming(true)}>
            Save as…
          </Button>
        )}
        {saved && !edited && (
          <Button variant="ghost" size="small" onClick={() => attempt(deleteRunView(saved.id).then(() => onChoose({})))}>
            <Trash2 aria-hidden />
            Delete view
          </Button>
        )}
      </div>
      {naming && (
        <ViewNameDialog
          onClose={() => setNaming(false)}
          onSave={async (name) => {
            const made = await createRunView({ name, ...viewOf(search, list) });
            onChoose(searchOf(made));
          }}
        />
      )}
    </div>
  );
}

type RowsProps = { list: RunList; search: RunsSearch; sort: string; pending: boolean; onChange: (next: Partial<RunsSearch>) => void; onMore: (() => void) | undefined };

function Rows({ list: newest, search, sort, pending, onChange, onMore }: RowsProps) {
  // Hundreds of rows are rendered in pieces, so that keys and clicks are not kept waiting.
  const list = useDeferredValue(newest);
  const [labelled, setLabelled] = useState<RunRow | null>(null);
  const all = useMemo(() => list.sections.flatMap((section) => section.rows), [list]);
  // Chosen by a run of theirs: a row of seeds has no id that lasts.
  const chosen = useMemo(() => {
    const wanted = listed(search.run) ?? [];
    return wanted.flatMap((id) => all.find((row) => row.run_ids.includes(id)) ?? []).filter((row, index, rows) => rows.indexOf(row) === index);
  }, [all, search.run]);
  const choose = useCallback(
    (row: RunRow) => {
      const first = row.run_ids[0] ?? "";
      const kept = chosen.filter((other) => other.id !== row.id).map((other) => other.run_ids[0]);
      onChange({ run: (kept.length === chosen.length ? [...kept, first] : kept).join(",") || undefined });
    },
    [chosen, onChange],
  );
  const sortBy = useCallback((next: string) => onChange({ sort: next === DEFAULT_SORT ? undefined : next }), [onChange]);
  const filterByTag = useCallback((tag: string) => onChange({ query: `tag = ${JSON.stringify(tag)}` }), [onChange]);
  if (list.matched === 0) {
    return (
      <Card className="mt-3.5">
        <EmptyState icon={SearchX} title="No runs match." action={<Button onClick={() => onChange({ query: undefined, source: undefined })}>Clear the filter</Button>} />
      </Card>
    );
  }
  return (
    <>
      {chosen.length > 0 && (
        <Suspense>
          <ComparePanel rows={chosen} configs={list.config_columns} metrics={list.metric_columns} query={search.query ?? ""} onClear={() => onChange({ run: undefined })} />
        </Suspense>
      )}
      <Updating pending={pending} className="mt-3.5">
        <Card className={cn("overflow-x-auto p-0")}>
          <RunTable list={list} sort={sort} onSort={sortBy} chosen={chosen} onChoose={choose} onLabel={setLabelled} onTag={filterByTag} />
        </Card>
      </Updating>
      {onMore && (
        <div className="mt-3 text-center">
          <Button onClick={onMore}>
            Show more of {counted(list.rows, "row")}
          </Button>
        </div>
      )}
      {labelled && <LabelsDialog row={labelled} onClose={() => setLabelled(null)} />}
    </>
  );
}
