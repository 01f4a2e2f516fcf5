import { Tabs as Radix } from "radix-ui";
import { type ComponentProps, useEffect, useRef } from "react";
import { cn } from "./class-names";

export const Tabs = Radix.Root;

export function TabList({ className, ...rest }: ComponentProps<typeof Radix.List>) {
  const strip = useRef<HTMLDivElement>(null);
  const shown = useRef<HTMLElement | null>(null);
  // On a phone the strip is wider than the screen, and the chosen tab may lie outside it. Only another choice moves the
  // strip: a live page is drawn again with every step, while somebody swipes to a tab further along.
  useEffect(() => {
    const box = strip.current;
    const active = box?.querySelector<HTMLElement>("[data-state=active]") ?? null;
    if (active === shown.current) return;
    shown.current = active;
    if (box && active) box.scrollLeft = Math.max(0, active.offsetLeft + active.offsetWidth - box.clientWidth + 24);
  });

  return (
    <div ref={strip} className="relative -mx-1 overflow-x-auto px-1 py-1 print:hidden">
      <Radix.List
        className={cn("flex w-max gap-1 rounded-[10px] border border-line bg-rail p-[3px]", className)}
        {...rest}
      />
    </div>
  );
}

export function Tab({ className, ...rest }: ComponentProps<typeof Radix.Trigger>) {
  return (
    <Radix.Trigger
      className={cn(
        "rounded-lg px-3.5 py-1.25 text-dim transition-colors duration-150 enabled:hover:text-text disabled:opacity-55 data-[state=active]:bg-raised data-[state=active]:text-white max-sm:px-2.5 max-sm:py-2 max-sm:text-sm",
        className,
      )}
      {...rest}
    />
  );
}

/** `keepMounted`: what was typed in a form stays while another tab is open. */
export function TabPanel({ className, keepMounted, ...rest }: ComponentProps<typeof Radix.Content> & { keepMounted?: boolean }) {
  return <Radix.Content forceMount={keepMounted || undefined} className={cn("mt-4 focus-visible:outline-offset-4 data-[state=inactive]:hidden", className)} {...rest} />;
}
