/**
 * Toasts, over sonner. A success disappears after five seconds; a failure stays until somebody dismisses it.
 * All of them are visible at once, so that a later success never hides a failure.
 */
import { CircleCheck, TriangleAlert, X } from "lucide-react";
import { type CSSProperties, useState } from "react";
import { toast as sonner, Toaster } from "sonner";
import { sentenceOf } from "@/api/problem";

/** Says that something was done. */
export const toast = (message: string) => void sonner.success(message);

/** For failures that belong to no element of the page; all others are shown next to what failed. The same failure twice is one toast. */
export const toastFailure = (message: string) => void sonner.error(message, { id: message, duration: Infinity });

/** What a button does: `pending` while it runs. A failure becomes a toast. */
export function useAction<Given extends unknown[]>(action: (...given: Given) => Promise<void>): { pending: boolean; run: (...given: Given) => void } {
  const [pending, setPending] = useState(false);
  async function run(...given: Given) {
    setPending(true);
    try {
      await action(...given);
    } catch (error) {
      toastFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  }
  return { pending, run: (...given) => void run(...given) };
}

export const dismissToasts = () => void sonner.dismiss();

/** The list of toasts. Alt+T moves the focus to it. */
export function Toasts() {
  return (
    <Toaster
      position="bottom-right"
      offset={16}
      // Above the bar that starts a job: an error stays until it is dismissed, and must not cover the button.
      mobileOffset={{ bottom: 88, left: 16, right: 16 }}
      gap={8}
      duration={5000}
      expand
      visibleToasts={Infinity}
      closeButton
      icons={{
        success: <CircleCheck aria-hidden className="size-4.5 text-success-soft" />,
        error: <TriangleAlert aria-hidden className="size-4.5 text-danger-soft" />,
        close: <X aria-hidden className="size-4" />,
      }}
      // Sonner's own style sheet is in no layer and would win without the exclamation marks. An open dialog
      // takes the pointer from everything outside it; a toast gets it back.
      className="font-sans!"
      style={{ "--width": "26rem" } as CSSProperties}
      toastOptions={{
        unstyled: true,
        closeButtonAriaLabel: "Dismiss",
        classNames: {
          toast:
            "pointer-events-auto flex w-full items-center gap-3 rounded-card border border-line-strong bg-raised py-2 pr-2 pl-3.5 text-base text-text shadow-xl shadow-black/40 focus-visible:outline-2! focus-visible:outline-offset-2! focus-visible:outline-violet-soft!",
          icon: "shrink-0",
          content: "min-w-0 grow wrap-anywhere",
          closeButton: "order-last grid size-7 shrink-0 place-items-center rounded-control text-dim hover:bg-white/6 hover:text-text",
        },
      }}
    />
  );
}
