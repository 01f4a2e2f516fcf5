import { useQuery } from "@tanstack/react-query";
import { projectsQuery } from "@/api/projects";
import { Card, CardHeader } from "@/components/card";
import { Input } from "@/components/input";
import { Select } from "@/components/select";
import { Field } from "@/forms/field";
import type { Draft, DraftMistakes } from "./script-draft";

type TextName = "arguments" | "datasets" | "packages" | "name" | "budget" | "maxHours";

const isChecked = (name: TextName) => name === "arguments" || name === "budget" || name === "maxHours";

type RunCardProps = { draft: Draft; packages: readonly string[]; mistakes: DraftMistakes; onChange: (change: Partial<Draft>) => void };

/** How the job is started and named, and where its bill ends. */
export function RunCard({ draft, packages, mistakes, onChange }: RunCardProps) {
  const projects = useQuery(projectsQuery({ limit: 100 }));
  const options = [["", "Scripts"] as const, ...(projects.data?.items ?? []).map(({ id, name }) => [id, name] as const)];
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
        {text("arguments", { label: "Arguments", placeholder: "--batch_size=12 --max_iters=2000", help: "The command line after the script’s name.", wide: true })}
        {text("name", { label: "Job name", placeholder: "the script’s name" })}
        <Field label="Project">{(control) => <Select {...control} value={draft.project} options={options} onChange={(event) => onChange({ project: event.target.value })} />}</Field>
        {text("budget", { label: "Budget, in US dollars", placeholder: "no limit", numeric: true, help: "At this amount it saves a checkpoint, then ends. Warned at half and at 80 %." })}
        {text("maxHours", { label: "Longest time, in hours", placeholder: "no limit", numeric: true, help: "After this it saves a checkpoint, then ends." })}
        {text("packages", { label: "Packages", placeholder: packages.join(", ") || "none", help: "What pip installs on a rented machine; left empty, what the script seems to need." })}
        {text("datasets", { label: "Named datasets", placeholder: "shakespeare", help: "Put beside the script, in data/NAME." })}
      </div>
    </Card>
  );
}
