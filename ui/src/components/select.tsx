import { ChevronDown } from "lucide-react";
import type { ComponentProps } from "react";
import { cn } from "./class-names";
import { inputClass } from "./input";

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
