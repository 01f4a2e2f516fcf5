import { useId } from "react";
import type { UseFormRegisterReturn } from "react-hook-form";

type ChoiceCardsProps = {
  registration: UseFormRegisterReturn;
  label: string;
  options: readonly (readonly [value: string, text: string, note?: string])[];
  help?: string;
  error?: string;
};

/** A few alternatives that deserve a line each, side by side. Radio buttons underneath: arrow keys move. */
export function ChoiceCards({ registration, label, options, help, error }: ChoiceCardsProps) {
  const id = useId();
  const described = [error && `${id}-error`, help && `${id}-help`].filter(Boolean).join(" ");
  return (
    <fieldset aria-describedby={described || undefined} className="min-w-0">
      <legend className="mb-1.5 text-xs text-dim">{label}</legend>
      <div className="grid gap-2 sm:grid-cols-3">
        {options.map(([value, text, note]) => (
          <label
            key={value}
            className="block cursor-pointer rounded-control border border-line-strong px-3 py-2 transition-colors duration-150 hover:border-white/25 has-checked:border-violet-bright has-checked:bg-violet/15 has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-violet-soft"
          >
            <input type="radio" value={value} {...registration} className="sr-only" />
            <span className="block font-[560]">{text}</span>
            {note && <span className="block text-xs text-dim">{note}</span>}
          </label>
        ))}
      </div>
      {error && (
        <p id={`${id}-error`} className="mt-1.5 text-xs text-danger-soft">
          {error}
        </p>
      )}
      {help && (
        <p id={`${id}-help`} className="mt-1.5 text-xs text-faint">
          {help}
        </p>
      )}
    </fieldset>
  );
}
