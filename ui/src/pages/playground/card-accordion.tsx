import { ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Card } from "@/components/card";

type CardAccordionProps = { title: string; note?: string; startsClosed?: boolean; children: ReactNode };

const isWide = () => window.matchMedia("(min-width: 64rem)").matches;

/** A card beside the conversation. On a phone it lies below it and starts closed, so that the composer stays near. */
export function CardAccordion({ title, note, startsClosed = false, children }: CardAccordionProps) {
  const [open, setOpen] = useState(() => !startsClosed && isWide());
  return (
    <Card>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)} className="group">
        <summary className="flex cursor-pointer list-none items-center gap-1.5 hover:text-white">
          <ChevronRight aria-hidden className="size-3.5 transition-transform duration-150 group-open:rotate-90" />
          <h2 className="text-[13px] font-[590]">{title}</h2>
          {note && <span className="ml-auto text-xs text-dim">{note}</span>}
        </summary>
        <div className="mt-3">{children}</div>
      </details>
    </Card>
  );
}
