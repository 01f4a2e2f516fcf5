import { ChevronDown } from "lucide-react";
import type { ComponentProps } from "react";
import { cn } from "./class-names";
import { inputClass } from "./input";

type Option = readonly [value: string, text: string];
export type OptionGroup = { title: string; options: readonly Option[] };

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
