import { Input } from "@/components/input";
import { Field } from "@/forms/field";
import { parseNumber } from "@/forms/number-rules";
import { OfferPicker } from "./offer-picker";
import { LIMITS, type LimitName, type RentalForm } from "./use-rental-form";

type RentalFieldsProps = {
  rental: RentalForm;
  hoursLabel?: string;
  /** A plan says that a machine of this server can run it, GPU or not. */
  fitsHere?: boolean;
};

/** What a job needs, the places for it, and where its bill ends. */
export function RentalFields({ rental, hoursLabel = LIMITS.hours.label, fitsHere = false }: RentalFieldsProps) {
  const field = (name: LimitName, label: string = LIMITS[name].label) => (
    <Field label={label} error={rental.mistake(name) ?? undefined} optional={name === "budget" || name === "maxHours"}>
      {(control) => (
        <Input {...control} inputMode="decimal" autoComplete="off" value={rental.values[name]} placeholder={name === "hours" && rental.reckoned ? "reckoned from the plan" : LIMITS[name].placeholder} onChange={(event) => rental.type(name, event.target.value)} />
      )}
    </Field>
  );
  return (
    <div className="grid gap-3.5">
      <div className="grid gap-3.5 sm:grid-cols-2">
        {field("memory")}
        {field("hours", hoursLabel)}
      </div>
      <OfferPicker selection={rental.selection} memoryGb={fitsHere ? null : parseNumber(rental.values.memory)} waiting="Say how much memory and how many hours it needs; offers follow." />
      <div className="grid gap-3.5 sm:grid-cols-2">
        {field("budget")}
        {field("maxHours")}
      </div>
    </div>
  );
}
