import { useState } from "react";
import { readCost } from "@/api/job-cost";
import { moveJob } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import type { Needs } from "@/api/scripts";
import type { Job } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Input } from "@/components/input";
import { Notice } from "@/components/notice";
import { toast } from "@/components/toasts";
import { Field } from "@/forms/field";
import { numberMistake, parseNumber } from "@/forms/number-rules";
import { PlacePicker } from "@/pages/offers/place-picker";
import { connectionOf, usePlaces } from "@/pages/offers/use-places";
import { moveNeeds } from "./move-needs";

export function MoveDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title="Go on elsewhere"
      description="It goes on from its newest checkpoint, with the same name, charts and history."
      className="max-w-2xl"
    >
      <MoveForm job={job} onClose={onClose} />
    </Dialog>
  );
}

const FIELDS = {
  memory: { label: "Memory of the GPU, in GB", most: 100_000, placeholder: "16" },
  hours: { label: "Hours that are left", most: 100_000, placeholder: "1" },
  budget: { label: "Budget, in US dollars", most: 1_000_000, placeholder: "as before" },
  maxHours: { label: "Longest time, in hours", most: 100_000, placeholder: "as before" },
} as const;
type Name = keyof typeof FIELDS;

function MoveForm({ job, onClose }: { job: Job; onClose: () => void }) {
  const known = moveNeeds(job);
  const limit = readCost(job)?.limit ?? null;
  const [values, setValues] = useState<Record<Name, string>>({ memory: written(known.memoryGb), hours: written(known.hours), budget: written(limit), maxHours: "" });
  const [failure, setFailure] = useState<string | null>(null);
  const [pending, setPending] = useState(false);
  const mistakes = Object.fromEntries(Object.entries(FIELDS).map(([name, { most }]) => [name, numberMistake(values[name as Name], { above: 0, most }, false)]));
  const places = usePlaces(asked(parseNumber(values.memory), parseNumber(values.hours)));
  const service = places.choice ? connectionOf(places.connections, places.choice) : undefined;

  async function move() {
    if (Object.values(mistakes).some(Boolean)) return;
    if (service && !service.connected) return setFailure(`Connect ${service.title} first, or choose another place.`);
    setPending(true);
    setFailure(null);
    try {
      await moveJob(job.id, { offer: places.choice, budget: parseNumber(values.budget), maxHours: parseNumber(values.maxHours) });
      toast("The job is queued and goes on there.");
      onClose();
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }

  const field = (name: Name) => (
    <Field label={FIELDS[name].label} error={mistakes[name] ?? undefined} optional={name === "budget" || name === "maxHours"}>
      {(control) => (
        <Input {...control} inputMode="decimal" autoComplete="off" value={values[name]} placeholder={FIELDS[name].placeholder} onChange={(event) => setValues((before) => ({ ...before, [name]: event.target.value }))} />
      )}
    </Field>
  );

  return (
    <form
      noValidate
      aria-label="Go on elsewhere"
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        void move();
      }}
    >
      {failure && (
        <Notice tone="bad" role="alert">
          {failure}
        </Notice>
      )}
      <div className="grid gap-3.5 sm:grid-cols-2">
        {field("memory")}
        {field("hours")}
      </div>
      <PlacePicker places={places} memoryGb={parseNumber(values.memory)} back={`/jobs/${job.id}`} waiting="Say how much memory and how many hours it needs; offers follow." />
      <div className="grid gap-3.5 sm:grid-cols-2">
        {field("budget")}
        {field("maxHours")}
      </div>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" pending={pending}>
          Go on there
        </Button>
      </div>
    </form>
  );
}

const written = (value: number | null) => (value === null ? "" : String(value));

function asked(memoryGb: number | null, hours: number | null): { needs: Needs } | null {
  if (!memoryGb || !hours || memoryGb < 0 || hours < 0) return null;
  return { needs: { memoryGb, hours, gpus: 1, multiNode: false, interactive: false, bf16: false, resumes: true, diskGb: 50, dataGb: 1 } };
}
