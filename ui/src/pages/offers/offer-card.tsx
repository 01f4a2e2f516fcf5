import { ChevronRight, TriangleAlert } from "lucide-react";
import { type ReactNode, useId } from "react";
import { Badge } from "@/components/badge";
import { cn } from "@/components/class-names";

export type OfferCardProps = {
  /** The radio buttons of one choice share a name. */
  group: string;
  title: string;
  line: string;
  price: string;
  priceNote: ReactNode;
  checked: boolean;
  onChoose: () => void;
  recommended?: boolean;
  disabled?: boolean;
  reasons?: readonly string[];
  cautions?: readonly string[];
  /** What a person has to do before this can be taken. */
  action?: ReactNode;
  details?: ReactNode;
};

/** One place to run a job. A radio button underneath: arrow keys move. What can be clicked besides lies outside its label. */
export function OfferCard({ group, title, line, price, priceNote, checked, onChoose, recommended, disabled, reasons = [], cautions = [], action, details }: OfferCardProps) {
  const id = useId();
  return (
    <div
      className={cn(
        "rounded-control border border-line-strong transition-colors duration-150 has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-violet-soft",
        checked ? "border-teal-soft bg-teal/12" : "hover:border-white/25",
      )}
    >
      <label className={cn("block px-3.5 pt-2.5 pb-2", disabled ? "cursor-not-allowed" : "cursor-pointer")}>
        <input
          type="radio"
          name={group}
          checked={checked}
          disabled={disabled}
          onChange={onChoose}
          aria-labelledby={`${id}-title ${id}-price`}
          aria-describedby={`${id}-line`}
          className="sr-only"
        />
        <span className="flex flex-wrap items-baseline justify-between gap-x-4">
          <span className="flex min-w-0 flex-wrap items-center gap-x-2 gap-y-1 text-lg font-[590]">
            <span id={`${id}-title`} className="min-w-0 break-words">
              {title}
            </span>
            {recommended && <Badge tone="teal">recommended</Badge>}
          </span>
          <span id={`${id}-price`} className="text-lg font-[620] tracking-[-0.01em] whitespace-nowrap tabular-nums">
            {price}
          </span>
        </span>
        <span id={`${id}-line`} className="mt-0.5 flex flex-wrap justify-between gap-x-4 text-xs text-dim">
          <span className="min-w-0">{line}</span>
          <span className="ml-auto text-right">{priceNote}</span>
        </span>
      </label>
      {(reasons.length > 0 || cautions.length > 0) && (
        <ul className="grid gap-0.5 px-3.5 pb-2 text-xs">
          {reasons.map((reason) => (
            <li key={reason} className="text-[#a5ecf2]">
              {reason}
            </li>
          ))}
          {cautions.map((caution) => (
            <li key={caution} className="flex gap-1.5 text-dim">
              <TriangleAlert aria-hidden className="mt-0.75 size-3 shrink-0 text-warning" />
              <span className="min-w-0">{caution}</span>
            </li>
          ))}
        </ul>
      )}
      {(action || details) && (
        <div className="flex flex-wrap items-start justify-between gap-x-4 gap-y-2 px-3.5 pb-2.5 text-xs">
          {details && (
            <details className="group/offer min-w-0 flex-1 basis-60">
              <summary aria-label={`How this is reckoned: ${title}`} className="flex w-max cursor-pointer list-none items-center gap-1 text-dim hover:text-text">
                <ChevronRight aria-hidden className="size-3.5 transition-transform duration-150 group-open/offer:rotate-90" />
                How this is reckoned
              </summary>
              <div className="mt-2">{details}</div>
            </details>
          )}
          {action}
        </div>
      )}
    </div>
  );
}
