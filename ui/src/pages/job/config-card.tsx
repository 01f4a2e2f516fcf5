/** The config and the script of a job. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { scriptQuery } from "@/api/jobs";
import type { Job } from "@/api/types";
import { CopyButton } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/components/figures";
import { Loaded, SkeletonRows } from "@/components/loaded";

type Json = Record<string, unknown>;
const isGroup = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);

const words = (name: string) => name.replaceAll("_", " ");
const valueText = (value: unknown) => {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return Array.isArray(value) ? value.join(", ") : String(value);
};

/** Defaults that a config always carries say nothing where they do not apply. */
export function effectiveConfig(config: Json): Json {
  const { lora, ...others } = config;
  const visible: Json = config.method === "full" || lora === undefined ? others : { ...others, lora };
  if (!isGroup(config.model)) return visible;
  const { preset, path, random_weights, ...sizes } = config.model;
  return { ...visible, model: path ? { path, random_weights, ...sizes } : { preset, ...sizes } };
}

/** What was set, by group. What was left to the defaults of a preset says nothing and is left out. */
function factsOf(group: Json, prefix = ""): [string, string][] {
  return Object.entries(group).flatMap(([name, value]): [string, string][] => {
    if (value === null || (Array.isArray(value) && value.length === 0)) return [];
    if (isGroup(value)) return factsOf(value, `${prefix}${words(name)} `);
    return [[`${prefix}${words(name)}`, valueText(value)]];
  });
}

export function ConfigCard({ config }: { config: Json }) {
  const [asJson, setAsJson] = useState(false);
  const json = JSON.stringify(config, null, 2);
  const entries = Object.entries(effectiveConfig(config));
  const groups = entries.filter(([, value]) => isGroup(value) && factsOf(value).length > 0) as [string, Json][];
  const general = Object.fromEntries(entries.filter(([, value]) => !isGroup(value)));
  return (
    <Card>
      <CardHeader title="Config">
        <div className="flex items-center gap-2">
          <button type="button" aria-pressed={asJson} onClick={() => setAsJson(!asJson)} className="rounded-md px-2 py-1 text-xs text-violet-soft underline-offset-3 hover:underline">
            {asJson ? "Show as groups" : "Show as JSON"}
          </button>
          <CopyButton text={json} label="Copy the config as JSON" />
        </div>
      </CardHeader>
      {asJson ? (
        <pre className="overflow-x-auto rounded-control border border-line bg-rail p-3 font-mono text-xs text-code">{json}</pre>
      ) : (
        <div className="gap-x-8 sm:columns-2 xl:columns-3 min-[88rem]:columns-4">
          {[["general", general] as const, ...groups].map(([name, group]) => (
            <section key={name} className="mb-5 break-inside-avoid">
              <h3 className="mb-1.5 text-2xs tracking-[0.05em] text-faint uppercase">{words(name)}</h3>
              <Facts facts={factsOf(group)} />
            </section>
          ))}
        </div>
      )}
    </Card>
  );
}

/** The script that the job runs, to read or to run by hand. Fetched when somebody opens it. */
export function ScriptCard({ job }: { job: Job }) {
  const [open, setOpen] = useState(false);
  const script = useQuery({ ...scriptQuery(job.id), enabled: open });
  const name = job.task?.kind === "script" ? job.task.entry : "train.py";
  return (
    <Card>
      <CardHeader title="Script">
        <div className="flex items-center gap-2">
          <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="rounded-md px-2 py-1 text-xs text-violet-soft underline-offset-3 hover:underline">
            {open ? `Hide ${name}` : `Show ${name}`}
          </button>
          {script.data && <CopyButton text={script.data.script} label={`Copy ${name}`} />}
        </div>
      </CardHeader>
      <p className="text-sm text-dim">{job.kind === "script" ? "The job runs this script unchanged, in its own folder." : "The job runs this script with its config.json in the same folder. If you run the script yourself, you get the same result."}</p>
      {open && (
        <Loaded query={script} skeleton={<SkeletonRows rows={6} />}>
          {({ script: source }) => (
            // Wrapped: what scrolls sideways is out of reach for a keyboard.
            <pre className="mt-3 rounded-control border border-line bg-rail p-3 font-mono text-xs wrap-anywhere whitespace-pre-wrap text-code">{source}</pre>
          )}
        </Loaded>
      )}
    </Card>
  );
}
