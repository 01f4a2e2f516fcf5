/** A section that opens on a click. Its closed heading says what is inside, so that nobody opens it only to look. */
import { ChevronRight } from "lucide-react";
import { type ReactNode, useDeferredValue } from "react";
import { cn } from "./class-names";

type AccordionProps = {
  title: string;
  /** The present values, at the right of the title; below it on a phone. */
  summary?: ReactNode;
  open: boolean;
  onToggle: (open: boolean) => void;
  className?: string;
  children: ReactNode;
};

export function Accordion({ title, summary, open, onToggle, className, children }: AccordionProps) {
  // What is closed is rendered after the page is shown, in pieces that let clicks and keys through.
  const shown = useDeferredValue(true, open);
  return (
    <details open={open} onToggle={(event) => onToggle(event.currentTarget.open)} className={cn("group border-t border-line last:-mb-2 last:open:mb-0", className)}>
      <summary className="flex cursor-pointer list-none items-start gap-1.5 py-2 text-sm text-dim hover:text-text">
        <ChevronRight aria-hidden className="mt-0.75 size-3.5 shrink-0 transition-transform duration-150 group-open:rotate-90" />
        <span className="flex min-w-0 grow flex-wrap justify-between gap-x-4 max-sm:flex-col">
          {title}
          {summary && <span className="min-w-0 text-xs leading-[1.6] wrap-anywhere text-faint sm:text-right">{summary}</span>}
        </span>
      </summary>
      <div className="pt-1 pb-3">{(open || shown) && children}</div>
    </details>
  );
}

/** For sections that are open where there is room for them beside the rest. */
export const isWide = () => window.matchMedia("(min-width: 64rem)").matches;
