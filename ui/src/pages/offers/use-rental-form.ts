import { useState } from "react";
import type { Needs } from "@/api/scripts";
import { numberMistake, parseNumber } from "@/forms/number-rules";
import { PREFER_LOCAL, type OfferPreference, useOfferSelection } from "./use-offer-selection";

/** What a job is known to need; null where nobody knows. Operations tell how long it takes on any GPU. */
export type KnownNeeds = { memoryGb: number | null; hours: number | null; operations?: number | null };

export const LIMITS = {
  memory: { label: "Memory of the GPU, in GB", most: 100_000, placeholder: "16" },
  hours: { label: "Hours it takes", most: 100_000, placeholder: "1" },
  budget: { label: "Budget, in US dollars", most: 1_000_000, placeholder: "no limit" },
  maxHours: { label: "Longest time, in hours", most: 100_000, placeholder: "no limit" },
} as const;
export type LimitName = keyof typeof LIMITS;

export const written = (value: number | null) => (value === null ? "" : String(value));

/** A place for a job whose needs are figures, and what it may cost there. What was not typed follows what is known. `here`: nothing is rented until somebody says so. */
export function useRentalForm(known: KnownNeeds, { budget = "", maxHours = "", preferLocal = false }: { budget?: string; maxHours?: string; preferLocal?: boolean } = {}) {
  const [typed, setTyped] = useState<Partial<Record<LimitName, string>>>({});
  const values: Record<LimitName, string> = { memory: written(known.memoryGb), hours: written(known.hours), budget, maxHours, ...typed };
  const mistake = (name: LimitName) => numberMistake(values[name], { above: 0, most: LIMITS[name].most }, false);
  const names = Object.keys(LIMITS) as LimitName[];
  const operations = typed.hours === undefined && known.hours === null ? (known.operations ?? null) : null;
  const [preference, setPreference] = useState<OfferPreference>(preferLocal ? PREFER_LOCAL : { picked: null, preferred: null });
  const selection = useOfferSelection(needsRequest(parseNumber(values.memory), parseNumber(values.hours), operations), preference, (picked) => setPreference({ ...preference, picked }));
  return {
    values,
    selection,
    /** Nobody said hours: how much is computed tells them for every GPU. */
    reckoned: operations !== null,
    mistake,
    wrong: names.some((name) => mistake(name) !== null),
    type: (name: LimitName, text: string) => setTyped((before) => ({ ...before, [name]: text })),
    /** What is sent; no offer is this machine. */
    taken: { offer: selection.choice, budget: parseNumber(values.budget), maxHours: parseNumber(values.maxHours) },
  };
}

export type RentalForm = ReturnType<typeof useRentalForm>;

function needsRequest(memoryGb: number | null, hours: number | null, operations: number | null): { needs: Needs } | null {
  if (!memoryGb || memoryGb < 0) return null;
  const length = hours && hours > 0 ? { hours } : operations ? { operations } : null;
  return length && { needs: { memoryGb, ...length, gpus: 1, multiNode: false, interactive: false, bf16: false, resumes: true, diskGb: 50, dataGb: 1 } };
}
