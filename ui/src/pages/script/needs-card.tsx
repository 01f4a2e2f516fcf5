/** What a script needs, as detected in it: values, confidence, the lines that say so, and a person's overrides. */
import { useQuery } from "@tanstack/react-query";
import { ChevronRight } from "lucide-react";
import { useState } from "react";
import { sentenceOf } from "@/api/problem";
import { type Confidence, type Detected, type Evidence, type Requirements, requirementsQuery } from "@/api/scripts";
import { Card, CardHeader } from "@/components/card";
import { cn } from "@/components/class-names";
import { Input, useDebounced } from "@/components/input";
import { SkeletonRows, Updating } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { Field } from "@/forms/field";
import { choiceText } from "@/forms/job-fields";
import { numberMistake, parseNumber } from "@/forms/rules";
import type { FieldSchema } from "@/forms/schema-fields";
import { countText, hoursText, parametersText } from "@/text/numbers";
import { type Draft, type DraftMistakes, OVERRIDE_SCHEMAS, type Overrides, scriptRequest } from "./script-draft";

const PAUSE = 500;

/** What the script needs, once the typing pauses. */
export function useNeeds(draft: Pick<Draft, "files" | "entry" | "arguments">) {
  const wanted = JSON.stringify(scriptRequest(draft));
  const settled = useDebounced(wanted, PAUSE);
  const request = JSON.parse(settled) as ReturnType<typeof scriptRequest>;
  const answer = useQuery(requirementsQuery(request));
  // What an earlier text needed says nothing about one that cannot be read.
  const requirements = request !== null && !answer.isError ? (answer.data ?? null) : null;
  return { answer, requirements, empty: request === null, behind: settled !== wanted || answer.isPlaceholderData };
}

type Needs = ReturnType<typeof useNeeds>;

const stated = <Value,>(value: Value): Detected<Value> => ({ value, confidence: "stated", evidence: [], reason: "Set by you." });

const within = (text: string, schema: FieldSchema) => (numberMistake(text, schema) === null ? parseNumber(text) : null);

/** The detected requirements, with a person's overrides. */
export function withOverrides(requirements: Requirements, { gpus, memory, hours }: Overrides): Requirements {
  const [count, gigabytes, duration] = [within(gpus, OVERRIDE_SCHEMAS.gpus), within(memory, OVERRIDE_SCHEMAS.memory), within(hours, OVERRIDE_SCHEMAS.hours)];
  return {
    ...requirements,
    gpus: count === null ? requirements.gpus : stated(count),
    gpu_memory_gb: gigabytes === null ? requirements.gpu_memory_gb : stated(gigabytes),
    duration_hours: duration === null ? requirements.duration_hours : stated(duration),
  };
}

/** Hours that a comment states without a GPU are not those of the reference GPU. */
function hoursLabel({ reference_gpu: gpu, stated_duration: comment, duration_hours: { evidence } }: Requirements): string {
  const isUnnamed = comment !== null && comment.value.gpu === null && evidence.length > 0;
  return gpu && !isUnnamed ? `Hours on ${gpu}` : "Hours";
}

/** One thing a script needs: what, how sure, why, and the lines that say so. */
type NeedRow = { name: string; value: string; confidence: Confidence; reason: string | null; evidence: Evidence[] };

const PURPOSES = { train: "training", infer: "inference", other: "other" };

/** Everything but the three figures that can be overridden. Where nothing was detected there is no row. */
export function needRows(requirements: Requirements): NeedRow[] {
  const rows: NeedRow[] = [];
  const one = <Value,>(name: string, given: Detected<Value> | null, text: (value: Value) => string | null) => {
    const value = given && text(given.value);
    if (given && value !== null && value !== "") rows.push({ name, value: value ?? "", confidence: given.confidence, reason: given.reason, evidence: given.evidence });
  };
  const several = (name: string, given: Detected<string>[]) => {
    if (given.length === 0) return;
    rows.push({ name, value: given.map(({ value }) => value).join(", "), confidence: leastSure(given), reason: given.map(({ reason }) => reason).find(Boolean) ?? null, evidence: given.flatMap(({ evidence }) => evidence) });
  };
  one("Purpose", requirements.purpose, (purpose) => PURPOSES[purpose]);
  several("Model", requirements.models);
  one("Parameters", requirements.parameters, parametersText);
  one("Method", requirements.method, (method) => choiceText("method", method));
  one("Batch size", requirements.batch, countText);
  one("Gradient accumulation", requirements.accumulation, (count) => (count > 1 ? `${countText(count)} batches` : null));
  one("Max sequence length", requirements.sequence, countText);
  one("Precision", requirements.dtype, String);
  one("Steps", requirements.iterations, countText);
  one("Epochs", requirements.epochs, countText);
  several("Datasets", requirements.datasets);
  several("Libraries", requirements.frameworks);
  several("Packages", requirements.packages);
  several("Multi-GPU method", requirements.parallelism);
  several("Experiment trackers", requirements.trackers);
  one("Multi-node", requirements.multi_node, (yes) => (yes ? "yes" : null));
  one("Keyboard input", requirements.interactive, (yes) => (yes ? "required" : null));
  one("Saves checkpoints with", requirements.checkpoints, ({ saves_with: savesWith }) => savesWith);
  one("Resumes with", requirements.checkpoints, ({ resumes_with: resumesWith }) => resumesWith ?? "cannot resume; restarts from the beginning");
  one("TensorBoard", requirements.writes_tensorboard, (yes) => (yes ? "yes" : null));
  return rows;
}

const ORDER: Confidence[] = ["stated", "derived", "assumed"];

const leastSure = (given: Detected<string>[]): Confidence => ORDER[Math.max(...given.map(({ confidence }) => ORDER.indexOf(confidence)))] ?? "assumed";

/** The lines of a file that something was found on. */
export function markedLines(requirements: Requirements | null, file: string | null, entry: string | null): Set<number> {
  if (requirements === null) return new Set();
  const all = [...needRows(requirements), requirements.gpus, requirements.gpu_memory_gb, requirements.duration_hours].flatMap(({ evidence }) => evidence);
  return new Set(all.filter((each) => each.line > 0 && (each.file ?? entry) === file).map(({ line }) => line));
}

type NeedsCardProps = {
  needs: Needs;
  overrides: Overrides;
  mistakes: DraftMistakes;
  onOverride: (change: Partial<Overrides>) => void;
  onShow: ShowLine;
};

/** The detected requirements of the script, value by value. The three that decide what it costs can be overridden. */
export function NeedsCard({ needs, overrides, mistakes, onOverride, onShow }: NeedsCardProps) {
  return (
    <Card aria-label="Script requirements">
      <CardHeader title="Script requirements" note="read from the script without running it" />
      <Updating pending={needs.behind} aria-live="polite">
        {needs.empty ? (
          <p className="text-sm text-dim">Add a script to see its requirements: GPUs, memory, hours and packages, each with the line it was found on.</p>
        ) : needs.answer.isError ? (
          <Notice tone="bad">{sentenceOf(needs.answer.error)}</Notice>
        ) : needs.requirements ? (
          <Values requirements={needs.requirements} overrides={overrides} mistakes={mistakes} onOverride={onOverride} onShow={onShow} />
        ) : (
          <SkeletonRows rows={5} />
        )}
      </Updating>
    </Card>
  );
}

type ValuesProps = Omit<NeedsCardProps, "needs"> & { requirements: Requirements };

function Values({ requirements, overrides, mistakes, onOverride, onShow }: ValuesProps) {
  // On a phone the figures that decide come first, and the offers soon after them.
  const [open, setOpen] = useState(() => window.matchMedia("(min-width: 64rem)").matches);
  const figure = (name: keyof Overrides, label: string, given: Detected<number>, text: string) => (
    <Figure label={label} given={given} detected={text} value={overrides[name]} error={mistakes[name]} onChange={(value) => onOverride({ [name]: value })} onShow={onShow} />
  );
  return (
    <div className="grid gap-3">
      {requirements.reference_gpu === null && <p className="text-sm text-dim">The script needs no GPU.</p>}
      <div className="grid gap-3 sm:grid-cols-3 lg:grid-cols-1">
        {figure("gpus", "GPUs", requirements.gpus, String(requirements.gpus.value))}
        {figure("memory", "Memory per GPU, in GB", requirements.gpu_memory_gb, String(requirements.gpu_memory_gb.value))}
        {figure("hours", hoursLabel(requirements), requirements.duration_hours, hoursDetected(requirements.duration_hours.value))}
      </div>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)} className="group border-t border-line pt-3">
        <summary className="flex w-max cursor-pointer list-none items-center gap-1.5 text-xs text-dim hover:text-text">
          <ChevronRight aria-hidden className="size-3.5 transition-transform duration-150 group-open:rotate-90" />
          All detected values
        </summary>
        <dl className="mt-2.5 grid gap-2 text-sm">
          {needRows(requirements).map((row) => (
            <Row key={row.name} row={row} onShow={onShow} />
          ))}
        </dl>
      </details>
      {requirements.notes.map((note) => (
        <p key={note} className="text-xs text-dim">
          {note}
        </p>
      ))}
    </div>
  );
}

const hoursDetected = (hours: number) => (hours >= 1 ? String(Number(hours.toPrecision(3))) : `${Number(hours.toPrecision(2))} (${hoursText(hours)})`);

type FigureProps = { label: string; given: Detected<number>; detected: string; value: string; error?: string; onChange: (value: string) => void; onShow: ShowLine };

function Figure({ label, given, detected, value, error, onChange, onShow }: FigureProps) {
  const own = value.trim() !== "" && !error;
  const help = (
    <span className="flex flex-wrap items-center gap-x-2 gap-y-1">
      {own ? <span>set by you; detected: {detected}</span> : <Sureness confidence={given.confidence} />}
      {!own && <EvidenceLinks of={label} evidence={given.evidence} onShow={onShow} />}
      {!own && given.reason && <span className="basis-full">{given.reason}</span>}
    </span>
  );
  return (
    <Field label={label} error={error} help={help}>
      {(control) => <Input {...control} value={value} placeholder={detected} inputMode="decimal" autoComplete="off" onChange={(event) => onChange(event.target.value)} />}
    </Field>
  );
}

function Row({ row, onShow }: { row: NeedRow; onShow: ShowLine }) {
  return (
    <div className="flex flex-wrap items-baseline justify-between gap-x-4">
      <dt className="text-dim">{row.name}</dt>
      <dd className="min-w-0 text-right font-[520] wrap-anywhere">{row.value}</dd>
      <dd className="flex basis-full flex-wrap gap-x-2 text-xs text-faint">
        <Sureness confidence={row.confidence} />
        <EvidenceLinks of={row.name} evidence={row.evidence} onShow={onShow} />
        {row.reason && <span className="min-w-0">{row.reason}</span>}
      </dd>
    </div>
  );
}

type ShowLine = (evidence: Evidence) => void;

const VISIBLE_LOCATIONS = 4;
const TONES: Record<Confidence, string> = { stated: "text-success-soft", derived: "text-teal-soft", assumed: "text-warning" };
const MEANINGS: Record<Confidence, string> = {
  stated: "the script sets this value",
  derived: "calculated from values in the script",
  assumed: "a typical value; the script does not set it",
};

/** How sure a value is, in one word. */
function Sureness({ confidence }: { confidence: Confidence }) {
  return (
    <span title={MEANINGS[confidence]} className={cn("font-[540]", TONES[confidence])}>
      {confidence}
    </span>
  );
}

/** The lines that a value rests on; each shows itself in the editor. */
function EvidenceLinks({ of, evidence, onShow }: { of: string; evidence: readonly Evidence[]; onShow: ShowLine }) {
  const seen = new Set<string>();
  const locations = evidence.filter((each) => !seen.has(locationText(each)) && seen.add(locationText(each)));
  if (locations.length === 0) return null;
  return (
    <span className="inline-flex flex-wrap gap-x-2">
      {locations.slice(0, VISIBLE_LOCATIONS).map((each) =>
        each.line === 0 ? (
          <span key={locationText(each)} title={each.text}>
            command line
          </span>
        ) : (
          <button
            key={locationText(each)}
            type="button"
            title={each.text}
            aria-label={`${of}: show ${locationText(each)}`}
            onClick={() => onShow(each)}
            className="text-violet-soft underline-offset-3 hover:underline max-sm:py-1"
          >
            {locationText(each)}
          </button>
        ),
      )}
    </span>
  );
}

const locationText = ({ line, file }: Evidence) => (line === 0 ? "command line" : file ? `${file}, line ${line}` : `line ${line}`);
