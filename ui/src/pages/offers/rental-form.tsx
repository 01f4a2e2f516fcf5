/** The form of a rented machine: what the job needs, the offer, and the limits of cost and time. */
import { useState } from "react";
import { NeedIn, NewJob } from "@/api/request-fields";
import type { Needs } from "@/api/scripts";
import { Input } from "@/components/input";
import { Field } from "@/forms/field";
import { numberMistake, parseNumber } from "@/forms/rules";
import { CHEAPEST_NEXT, failoverBody, FailoverFields } from "./failover-fields";
import { OfferPicker } from "./offer-picker";
import { type OfferPreference, PREFER_LOCAL, useOfferSelection } from "./offer-selection";

/** What a job is known to need; null where nobody knows. Operations tell how long it takes on any GPU. */
export type KnownNeeds = { memoryGb: number | null; hours: number | null; operations?: number | null };

const LIMITS = {
  memory: { label: "Required GPU memory, in GB", schema: NeedIn.memory_gb, placeholder: "16" },
  hours: { label: "Expected duration, in hours", schema: NeedIn.hours, placeholder: "1" },
  budget: { label: "Budget, in US dollars", schema: NewJob.budget, placeholder: "for rented machines only" },
  max_hours: { label: "Time limit, in hours", schema: NewJob.max_hours, placeholder: "for rented machines only" },
} as const;
type LimitName = keyof typeof LIMITS;

export const written = (value: number | null) => (value === null ? "" : String(value));

/** The offer for a job with known needs, and its limits. Fields that nobody typed in follow the known needs. `preferLocal`: nothing is rented until an offer is picked. */
export function useRentalForm(known: KnownNeeds, { budget = "", max_hours = "", preferLocal = false }: { budget?: string; max_hours?: string; preferLocal?: boolean } = {}) {
  const [typed, setTyped] = useState<Partial<Record<LimitName, string>>>({});
  const needed = { memory: written(known.memoryGb), hours: written(known.hours), ...typed };
  const mistake = (name: LimitName) => numberMistake(values[name], LIMITS[name].schema);
  const names = Object.keys(LIMITS) as LimitName[];
  const operations = typed.hours === undefined && known.hours === null ? (known.operations ?? null) : null;
  const [preference, setPreference] = useState<OfferPreference>(preferLocal ? PREFER_LOCAL : { picked: null, preferred: null });
  const selection = useOfferSelection(needsRequest(parseNumber(needed.memory), parseNumber(needed.hours), operations), preference, (picked) => setPreference({ ...preference, picked }));
  const [failover, setFailover] = useState(CHEAPEST_NEXT);
  // A rented machine always has limits: those of the offer, until somebody types others.
  const { limits } = selection;
  const values: Record<LimitName, string> = { budget: budget || written(limits?.budget ?? null), max_hours: max_hours || written(limits?.max_hours ?? null), ...needed };
  return {
    values,
    selection,
    /** No hours were given: they follow from the number of operations, for each GPU. */
    estimated: operations !== null,
    mistake,
    wrong: names.some((name) => mistake(name) !== null),
    type: (name: LimitName, text: string) => setTyped((before) => ({ ...before, [name]: text })),
    failover,
    setFailover,
    /** What is sent; no offer is this machine. */
    choice: { offer: selection.choice, budget: parseNumber(values.budget), max_hours: parseNumber(values.max_hours), ...failoverBody(failover) },
  };
}

export type RentalForm = ReturnType<typeof useRentalForm>;

function needsRequest(memoryGb: number | null, hours: number | null, operations: number | null): { needs: Needs } | null {
  if (!memoryGb || memoryGb < 0) return null;
  const length = hours && hours > 0 ? { hours } : operations ? { operations } : null;
  return length && { needs: { memory_gb: memoryGb, ...length } };
}

type RentalFieldsProps = {
  rental: RentalForm;
  hoursLabel?: string;
  /** A plan says that a machine of this server can run it, GPU or not. */
  fitsHere?: boolean;
};

/** What a job needs, the offers for it, and its limits of cost and time. */
export function RentalFields({ rental, hoursLabel = LIMITS.hours.label, fitsHere = false }: RentalFieldsProps) {
  const field = (name: LimitName, label: string = LIMITS[name].label) => (
    <Field label={label} error={rental.mistake(name) ?? undefined}>
      {(control) => (
        <Input {...control} inputMode="decimal" autoComplete="off" value={rental.values[name]} placeholder={name === "hours" && rental.estimated ? "estimated from the plan" : LIMITS[name].placeholder} onChange={(event) => rental.type(name, event.target.value)} />
      )}
    </Field>
  );
  return (
    <div className="grid gap-3.5">
      <div className="grid gap-3.5 sm:grid-cols-2">
        {field("memory")}
        {field("hours", hoursLabel)}
      </div>
      <OfferPicker selection={rental.selection} memoryGb={fitsHere ? null : parseNumber(rental.values.memory)} waiting="Enter the required GPU memory and the expected duration to see offers." />
      <div className="grid gap-3.5 sm:grid-cols-2">
        {field("budget")}
        {field("max_hours")}
      </div>
      <FailoverFields selection={rental.selection} failover={rental.failover} onChange={rental.setFailover} />
      {rental.selection.limits && <p className="text-xs text-dim">Twice the estimate, unless you change it. At a limit the job saves a checkpoint and pauses, and its machine is terminated.</p>}
    </div>
  );
}
