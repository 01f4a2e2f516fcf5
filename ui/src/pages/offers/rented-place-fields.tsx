import { Input } from "@/components/input";
import { Field } from "@/forms/field";
import { parseNumber } from "@/forms/number-rules";
import { PlacePicker } from "./place-picker";
import { LIMITS, type LimitName, type RentedPlace } from "./use-rented-place";

type RentedPlaceFieldsProps = {
  place: RentedPlace;
  hoursLabel?: string;
  /** A plan says that a machine of this server can run it, GPU or not. */
  fitsHere?: boolean;
};

/** What a job needs, the places for it, and where its bill ends. */
export function RentedPlaceFields({ place, hoursLabel = LIMITS.hours.label, fitsHere = false }: RentedPlaceFieldsProps) {
  const field = (name: LimitName, label: string = LIMITS[name].label) => (
    <Field label={label} error={place.mistake(name) ?? undefined} optional={name === "budget" || name === "maxHours"}>
      {(control) => (
        <Input {...control} inputMode="decimal" autoComplete="off" value={place.values[name]} placeholder={name === "hours" && place.reckoned ? "reckoned from the plan" : LIMITS[name].placeholder} onChange={(event) => place.type(name, event.target.value)} />
      )}
    </Field>
  );
  return (
    <div className="grid gap-3.5">
      <div className="grid gap-3.5 sm:grid-cols-2">
        {field("memory")}
        {field("hours", hoursLabel)}
      </div>
      <PlacePicker places={place.places} memoryGb={fitsHere ? null : parseNumber(place.values.memory)} waiting="Say how much memory and how many hours it needs; offers follow." />
      <div className="grid gap-3.5 sm:grid-cols-2">
        {field("budget")}
        {field("maxHours")}
      </div>
    </div>
  );
}
