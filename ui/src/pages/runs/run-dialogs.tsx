/** Dialogs of the run list: columns, grouping, tags and notes, and the name of a view. */
import { useId, useState } from "react";
import { sentenceOf } from "@/api/problem";
import { ViewIn } from "@/api/request-fields";
import { labelRun, refreshRuns } from "@/api/runs";
import type { RunList, RunRow } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Input, Textarea } from "@/components/input";
import { toastFailure } from "@/components/toasts";
import { RUN_COLUMNS } from "./run-words";

type ColumnsDialogProps = { list: RunList; columns: readonly string[]; group: readonly string[]; onChange: (columns: string[], group: string[]) => void; onClose: () => void };

const PARTS = [
  ["", "last"],
  [".min", "lowest"],
  [".max", "highest"],
  [".mean", "mean"],
] as const;
const GROUPS = [
  ["seeds", "Seeds in one row"],
  ["project", "By project"],
  ["source", "By source"],
  ["status", "By status"],
] as const;
const MOST_SHOWN = 60;

/** Any config field, any metric and any fact of a run as a column, and what rows are grouped by. */
export function ColumnsDialog({ list, columns, group, onChange, onClose }: ColumnsDialogProps) {
  const [chosen, setChosen] = useState<readonly string[]>(columns);
  const [grouped, setGrouped] = useState<readonly string[]>(group);
  const [search, setSearch] = useState("");
  const toggle = (name: string) => setChosen((kept) => (kept.includes(name) ? kept.filter((other) => other !== name) : [...kept, name]));
  const matching = (names: readonly string[]) => names.filter((name) => name.toLowerCase().includes(search.toLowerCase())).slice(0, MOST_SHOWN);
  const own = new Set<string>(GROUPS.map(([name]) => name));
  const field = grouped.find((name) => !own.has(name)) ?? "";
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title="Columns and grouping" className="max-w-2xl">
      <fieldset className="mb-3 flex flex-wrap items-center gap-x-4 gap-y-2">
        <legend className="mb-1.5 text-xs text-dim">Group rows</legend>
        {GROUPS.map(([name, label]) => (
          <Choice key={name} label={label} checked={grouped.includes(name)} onChange={() => setGrouped((kept) => (kept.includes(name) ? kept.filter((other) => other !== name) : name === "seeds" ? [...kept, name] : [name, ...kept]))} />
        ))}
        <Input aria-label="Group by a config field" placeholder="by a field, such as method" value={field} className="w-52" onChange={(event) => setGrouped((kept) => [...kept.filter((name) => own.has(name)), ...(event.target.value ? [event.target.value] : [])])} />
      </fieldset>
      <Input aria-label="Search columns" placeholder="Search columns" value={search} onChange={(event) => setSearch(event.target.value)} />
      <div className="mt-3 grid max-h-[46vh] gap-x-6 gap-y-3 overflow-auto sm:grid-cols-2">
        <ColumnList title="Config and facts" names={matching(list.config_columns)} chosen={chosen} onToggle={toggle} />
        <div>
          <h3 className="mb-1 text-xs text-dim">Metrics</h3>
          <ul className="space-y-1">
            {matching(list.metric_columns).map((name) => (
              <li key={name}>
                <p className="font-mono text-xs break-all">{name}</p>
                <div className="flex flex-wrap gap-x-3">
                  {PARTS.map(([part, word]) => (
                    <Choice key={part} label={word} checked={chosen.includes(name + part)} onChange={() => toggle(name + part)} />
                  ))}
                </div>
              </li>
            ))}
          </ul>
        </div>
        <ColumnList title="Run" names={matching(RUN_COLUMNS)} chosen={chosen} onToggle={toggle} />
      </div>
      <div className="mt-4 flex justify-end gap-2">
        <Button variant="ghost" onClick={onClose}>
          Cancel
        </Button>
        <Button variant="primary" onClick={() => onChange([...chosen], [...grouped])}>
          Apply
        </Button>
      </div>
    </Dialog>
  );
}

function Choice({ label, checked, onChange }: { label: string; checked: boolean; onChange: () => void }) {
  return (
    <label className="inline-flex items-center gap-1.5 text-sm">
      <input type="checkbox" checked={checked} onChange={onChange} className="size-4 accent-violet" />
      {label}
    </label>
  );
}

function ColumnList({ title, names, chosen, onToggle }: { title: string; names: readonly string[]; chosen: readonly string[]; onToggle: (name: string) => void }) {
  return (
    <div>
      <h3 className="mb-1 text-xs text-dim">{title}</h3>
      <ul className="space-y-0.5">
        {names.map((name) => (
          <li key={name} className="break-all">
            <Choice label={name} checked={chosen.includes(name)} onChange={() => onToggle(name)} />
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Tags of one run or of all seeds of a row; notes of one run. */
export function LabelsDialog({ row, onClose }: { row: RunRow; onClose: () => void }) {
  const [tags, setTags] = useState(row.tags.join(", "));
  const [notes, setNotes] = useState(row.notes);
  const [pending, setPending] = useState(false);
  const single = row.run_ids.length === 1;
  const id = useId();

  async function save() {
    setPending(true);
    const wanted = [...new Set(tags.split(",").map((tag) => tag.trim()).filter(Boolean))];
    try {
      for (const runId of row.run_ids) await labelRun(runId, { tags: wanted, ...(single ? { notes } : {}) });
      await refreshRuns();
      onClose();
    } catch (error) {
      toastFailure(`The tags were not saved. ${sentenceOf(error)}`);
      setPending(false);
    }
  }

  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={`Tags and notes of ${row.name}`} description={single ? undefined : `For all ${row.run_ids.length} runs of this row.`}>
      <form
        className="space-y-3"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <div>
          <label htmlFor={`${id}-tags`} className="mb-1 block text-xs text-dim">
            Tags, with commas between them
          </label>
          <Input id={`${id}-tags`} value={tags} onChange={(event) => setTags(event.target.value)} />
        </div>
        {single && (
          <div>
            <label htmlFor={`${id}-notes`} className="mb-1 block text-xs text-dim">
              Notes
            </label>
            <Textarea id={`${id}-notes`} rows={5} value={notes} onChange={(event) => setNotes(event.target.value)} />
          </div>
        )}
        <div className="flex justify-end gap-2">
          <Button variant="ghost" onClick={onClose}>
            Cancel
          </Button>
          <Button variant="primary" type="submit" pending={pending}>
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** A name for a new view. */
export function ViewNameDialog({ onSave, onClose }: { onSave: (name: string) => Promise<void>; onClose: () => void }) {
  const [name, setName] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [pending, setPending] = useState(false);

  async function save() {
    setPending(true);
    try {
      await onSave(name.trim());
      onClose();
    } catch (error) {
      setProblem(sentenceOf(error));
      setPending(false);
    }
  }

  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title="Save view" description="A view is a filter with its columns, grouping and order.">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <Input aria-label="Name of the view" placeholder="Learning-rate sweep" value={name} maxLength={ViewIn.name.maxLength} onChange={(event) => setName(event.target.value)} />
        {problem && <p role="alert" className="mt-1.5 text-xs text-danger-soft">{problem}</p>}
        <div className="mt-4 flex justify-end gap-2">
          <Button variant="ghost" onClick={onClose}>
            Cancel
          </Button>
          <Button variant="primary" type="submit" pending={pending} disabled={name.trim() === ""}>
            Save view
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
