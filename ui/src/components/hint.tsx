/** A question mark that explains a field on a click, for forms in which every help text at once would be too much. */
import { CircleHelp } from "lucide-react";
import { Popover } from "radix-ui";
import type { ReactNode } from "react";

export function Hint({ about, children }: { about: string; children: ReactNode }) {
  return (
    <Popover.Root>
      <Popover.Trigger className="-my-1 grid size-6 shrink-0 place-items-center rounded-control text-faint hover:text-text max-sm:size-7">
        <CircleHelp aria-hidden className="size-3.5" />
        <span className="sr-only">Help: {about}</span>
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content sideOffset={4} collisionPadding={8} aria-label={about} className="z-50 max-w-72 animate-fade rounded-control border border-line-strong bg-raised px-3 py-2 text-xs text-text shadow-xl shadow-black/40">
          {children}
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}
