/** Dialogs, also the one that asks for a confirmation. */
import { X } from "lucide-react";
import { AlertDialog, Dialog as Radix } from "radix-ui";
import { type ReactNode, useRef, useState } from "react";
import { sentenceOf } from "@/api/problem";
import { Button } from "./button";
import { cn } from "./class-names";
import { Notice } from "./notice";

/** Gives the focus back to what opened a dialog. Radix does so for its Trigger only; these are opened from anywhere. */
function useReturnedFocus() {
  const opener = useRef<HTMLElement | null>(null);
  return {
    onOpenAutoFocus: () => {
      const active = document.activeElement instanceof HTMLElement ? document.activeElement : null;
      // An item of a menu is gone by then; the button of the menu is not.
      const menu = active?.closest("[role=menu]");
      opener.current = menu ? document.getElementById(menu.getAttribute("aria-labelledby") ?? "") : active;
    },
    onCloseAutoFocus: (event: Event) => {
      event.preventDefault();
      // What opened it may be gone with the row that it deleted. The keyboard then continues in the page, not at its very top.
      const target = opener.current?.isConnected ? opener.current : document.getElementById("content");
      target?.focus({ preventScroll: true });
    },
  };
}

type DialogProps = {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  description?: ReactNode;
  children: ReactNode;
  className?: string;
};

/** A dialog for forms: a stray click outside it must not throw away what was typed, so only Esc and buttons close it. */
export function Dialog({ open, onOpenChange, title, description, children, className }: DialogProps) {
  const returnedFocus = useReturnedFocus();
  return (
    <Radix.Root open={open} onOpenChange={onOpenChange}>
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-50 animate-fade bg-overlay/70 backdrop-blur-[2px]" />
        <Radix.Content
          {...returnedFocus}
          onInteractOutside={(event) => event.preventDefault()}
          {...(description ? {} : { "aria-describedby": undefined })}
          className={cn(
            "fixed top-1/2 left-1/2 z-50 max-h-[calc(100dvh-2rem)] w-[calc(100vw-2rem)] max-w-lg -translate-x-1/2 -translate-y-1/2 animate-fade overflow-y-auto rounded-2xl border border-line-strong bg-card p-5 shadow-2xl shadow-black/50 focus:outline-none",
            className,
          )}
        >
          <div className="mb-4 pr-8">
            <Radix.Title className="text-xl font-[620] tracking-[-0.01em] wrap-anywhere">{title}</Radix.Title>
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

type ConfirmDialogProps = {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  children: ReactNode;
  /** What the button does, worded like the title: "Delete project". */
  action: string;
  /** The answer that changes nothing, where the action is itself to cancel something. */
  dismiss?: string;
  onConfirm: () => Promise<void>;
};

/** Asks once before something that cannot be undone. The answer that changes nothing has the focus. */
export function ConfirmDialog({ open, onOpenChange, title, children, action, dismiss = "Cancel", onConfirm }: ConfirmDialogProps) {
  const [pending, setPending] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  const returnedFocus = useReturnedFocus();

  async function confirm() {
    setPending(true);
    setFailure(null);
    try {
      await onConfirm();
      onOpenChange(false);
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }

  function change(next: boolean) {
    setFailure(null);
    onOpenChange(next);
  }

  return (
    <AlertDialog.Root open={open} onOpenChange={change}>
      <AlertDialog.Portal>
        <AlertDialog.Overlay className="fixed inset-0 z-50 animate-fade bg-overlay/70 backdrop-blur-[2px]" />
        <AlertDialog.Content {...returnedFocus} className="fixed top-1/2 left-1/2 z-50 w-[calc(100vw-2rem)] max-w-md -translate-x-1/2 -translate-y-1/2 animate-fade rounded-2xl border border-line-strong bg-card p-5 shadow-2xl shadow-black/50 focus:outline-none">
          <AlertDialog.Title className="text-xl font-[620] tracking-[-0.01em] wrap-anywhere">{title}</AlertDialog.Title>
          <AlertDialog.Description asChild>
            <div className="mt-1.5 text-dim">{children}</div>
          </AlertDialog.Description>
          {failure && (
            <Notice tone="bad" role="alert" className="mt-4">
              {failure}
            </Notice>
          )}
          <div className="mt-5 flex justify-end gap-2">
            <AlertDialog.Cancel asChild>
              <Button>{dismiss}</Button>
            </AlertDialog.Cancel>
            <Button variant="danger" pending={pending} onClick={() => void confirm()}>
              {action}
            </Button>
          </div>
        </AlertDialog.Content>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
