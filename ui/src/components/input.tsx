/** Text inputs, selects and the search box. */
import { ChevronDown, Search } from "lucide-react";
import { type ComponentProps, useEffect, useEffectEvent, useState } from "react";
import { Spinner } from "./button";
import { cn } from "./class-names";

// 16px on a phone: anything smaller makes iOS zoom into the field.
const inputClass =
  "w-full rounded-control border border-line-strong bg-rail px-3 text-text transition-[border-color,box-shadow] duration-150 placeholder:text-faint placeholder:italic hover:border-white/25 focus-visible:border-violet-bright focus-visible:ring-3 focus-visible:ring-violet/35 focus-visible:outline-none aria-invalid:border-danger-soft aria-invalid:focus-visible:ring-danger/30 disabled:opacity-60 max-sm:text-[16px]";

export function Input({ className, ...rest }: ComponentProps<"input">) {
  return <input className={cn(inputClass, "h-9.5 max-sm:h-11", className)} {...rest} />;
}

export function Textarea({ className, ...rest }: ComponentProps<"textarea">) {
  return <textarea className={cn(inputClass, "min-h-20 py-2", className)} {...rest} />;
}

type SelectProps = ComponentProps<"select"> & { options: readonly (readonly [value: string, text: string])[] };

/** The platform's own list: it works with every keyboard, screen reader and phone without help. */
export function Select({ options, className, ...rest }: SelectProps) {
  return (
    <div className={cn("relative", className)}>
      <select className={cn(inputClass, "h-9.5 appearance-none pr-9 max-sm:h-11")} {...rest}>
        {options.map(([value, text]) => (
          <option key={value} value={value} className="bg-rail">
            {text}
          </option>
        ))}
      </select>
      <ChevronDown aria-hidden className="pointer-events-none absolute top-1/2 right-3 size-4 -translate-y-1/2 text-dim" />
    </div>
  );
}

type Option = readonly [value: string, text: string];
type OptionGroup = { title: string; options: readonly Option[] };

type GroupedSelectProps = ComponentProps<"select"> & { first: Option; groups: readonly OptionGroup[] };

/** The platform's own list, in parts. */
export function GroupedSelect({ first, groups, className, ...rest }: GroupedSelectProps) {
  return (
    <div className={cn("relative", className)}>
      <select className={cn(inputClass, "h-9.5 appearance-none pr-9 max-sm:h-11")} {...rest}>
        <option value={first[0]} className="bg-rail">
          {first[1]}
        </option>
        {groups
          .filter(({ options }) => options.length > 0)
          .map(({ title, options }) => (
            <optgroup key={title} label={title} className="bg-rail">
              {options.map(([value, text]) => (
                <option key={value} value={value} className="bg-rail">
                  {text}
                </option>
              ))}
            </optgroup>
          ))}
      </select>
      <ChevronDown aria-hidden className="pointer-events-none absolute top-1/2 right-3 size-4 -translate-y-1/2 text-dim" />
    </div>
  );
}

/** The value once it has not changed for so long. */
export function useDebounced<Value>(value: Value, milliseconds: number): Value {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}

/**
 * A text that lives here while it is typed, and in the address afterwards: it is sent when the typing pauses. The
 * address follows a moment later, and must not take back what was typed in that moment.
 */
export function useTypedText(text: string, pause: number, onSend: (text: string) => void) {
  const [typed, setTyped] = useState(text);
  const [known, setKnown] = useState(text);
  const [underWay, setUnderWay] = useState<readonly string[]>([]);
  if (text !== known) {
    const isOwn = underWay.includes(text);
    setKnown(text);
    setUnderWay(isOwn ? underWay.slice(underWay.indexOf(text) + 1) : []);
    // The address changed by other means, such as the back button.
    if (!isOwn) setTyped(text);
  }

  const sent = underWay.at(-1) ?? text;
  const wanted = typed.trim();

  function send(next: string) {
    setUnderWay(next === text ? [] : [...underWay, next]);
    onSend(next);
  }

  const sendTyped = useEffectEvent(() => send(wanted));
  useEffect(() => {
    if (wanted === sent.trim()) return;
    const timer = setTimeout(sendTyped, pause);
    return () => clearTimeout(timer);
  }, [wanted, sent, pause]);

  return { typed, setTyped, send };
}

const PAUSE = 250;

type SearchBoxProps = { label: string; text: string; onSearch: (text: string) => void; busy?: boolean };

/** Searches when the typing pauses. */
export function SearchBox({ label, text, onSearch, busy }: SearchBoxProps) {
  const { typed, setTyped } = useTypedText(text, PAUSE, onSearch);

  return (
    <div className="relative mb-3.5 sm:max-w-xs">
      <Search aria-hidden className="pointer-events-none absolute top-1/2 left-3 size-4 -translate-y-1/2 text-dim" />
      <Input
        type="search"
        aria-label={label}
        placeholder={label}
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
        className="pr-9 pl-9"
      />
      {busy && (
        <span className="absolute top-1/2 right-3 -translate-y-1/2 text-dim">
          <Spinner />
        </span>
      )}
    </div>
  );
}
