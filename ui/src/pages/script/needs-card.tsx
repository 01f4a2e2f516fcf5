import { ChevronRight } from "lucide-react";
import { useState } from "react";
import { sentenceOf } from "@/api/problem";
import type { Detected, Requirements } from "@/api/scripts";
import { Card, CardHeader } from "@/components/card";
import { Input } from "@/components/input";
import { Notice } from "@/components/notice";
import { SkeletonRows } from "@/components/skeleton";
import { Updating } from "@/components/updating";
import { Field } from "@/forms/field";
import { hoursText } from "@/text/hours";
import { EvidenceLinks, type ShowLine, Sureness } from "./evidence-links";
import { type NeedRow, needRows } from "./need-words";
import type { DraftMistakes, Overrides } from "./script-draft";
import type { Needs } from "./use-needs";

type NeedsCardProps = {
  needs: Needs;
  overrides: Overrides;
  mistakes: DraftMistakes;
  onOverride: (change: Partial<Overrides>) => void;
  onShow: ShowLine;
};

/** What the script was found to need, value by value. The three that decide what it costs can be overruled. */
export function NeedsCard({ needs, overrides, mistakes, onOverride, onShow }: NeedsCardProps) {
  return (
    <Card aria-label="What it needs">
      <CardHeader title="What it needs" note="read from the script, nothing is run" />
      <Updating pending={needs.behind} aria-live="polite">
        {needs.empty ? (
          <p className="text-sm text-dim">Once there is a script, this says what it needs: GPUs, memory, hours, packages, each with the line that says so.</p>
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
      {requirements.referenceGpu === null && <p className="text-sm text-dim">It needs no GPU.</p>}
      <div className="grid gap-3 sm:grid-cols-3 lg:grid-cols-1">
        {figure("gpus", "GPUs", requirements.gpus, String(requirements.gpus.value))}
        {figure("memory", "Memory of each GPU, in GB", requirements.gpuMemoryGb, String(requirements.gpuMemoryGb.value))}
        {figure("hours", requirements.referenceGpu ? `Hours on ${requirements.referenceGpu}` : "Hours", requirements.durationHours, hoursDetected(requirements.durationHours.value))}
      </div>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)} className="group border-t border-line pt-3">
        <summary className="flex w-max cursor-pointer list-none items-center gap-1.5 text-xs text-dim hover:text-text">
          <ChevronRight aria-hidden className="size-3.5 transition-transform duration-150 group-open:rotate-90" />
          Everything that was found
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
      {own ? <span>yours; the script: {detected}</span> : <Sureness confidence={given.confidence} />}
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
      <dd className="min-w-0 text-right font-[520] break-words">{row.value}</dd>
      <dd className="flex basis-full flex-wrap gap-x-2 text-xs text-faint">
        <Sureness confidence={row.confidence} />
        <EvidenceLinks of={row.name} evidence={row.evidence} onShow={onShow} />
        {row.reason && <span className="min-w-0">{row.reason}</span>}
      </dd>
    </div>
  );
}
