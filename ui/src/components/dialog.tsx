import { X } from "lucide-react";
import { Dialog as Radix } from "radix-ui";
import type { ReactNode } from "react";
import { Button } from "./button";
import { cn } from "./class-names";

type DialogProps = {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  description?: ReactNode;
  children: ReactNode;
  className?: string;
};

/** A dialog for forms: a stray click beside it must not throw away what was typed, so only Esc and buttons close it. */
export function Dialog({ open, onOpenChange, title, description, children, className }: DialogProps) {
  return (
    <Radix.Root open={open} onOpenChange={onOpenChange}>
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-50 animate-fade bg-[#0d1320]/70 backdrop-blur-[2px]" />
        <Radix.Content
          onInteractOutside={(event) => event.preventDefault()}
          {...(description ? {} : { "aria-describedby": undefined })}
          className={cn(
            "fixed top-1/2 left-1/2 z-50 max-h-[calc(100dvh-2rem)] w-[calc(100vw-2rem)] max-w-lg -translate-x-1/2 -translate-y-1/2 animate-fade overflow-y-auto rounded-2xl border border-line-strong bg-card p-5 shadow-2xl shadow-black/50 focus:outline-none",
            className,
          )}
        >
          <div className="mb-4 pr-8">
            <Radix.Title className="text-xl font-[620] tracking-[-0.01em] break-words">{title}</Radix.Title>
            {description && <Radix.Description className="mt-1 text-dim">{description}</Radix.Description>}
          </div>
          {children}
          {/* Last in order, so that the focus starts in the form and not on the way out of it. */}
          <Radix.Close asChild>
            <Button variant="ghost" size="icon" aria-label="Close" className="absolute top-3.5 right-3.5">
              <X aria-hidden />
            </Button>
          </Radix.Close>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
