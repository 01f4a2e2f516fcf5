/** Buttons, the spinner of a pending one, and the button that copies a text. */
import { cva, type VariantProps } from "class-variance-authority";
import { Check, Copy, LoaderCircle } from "lucide-react";
import { Slot } from "radix-ui";
import { type ComponentProps, useEffect, useState } from "react";
import { cn } from "./class-names";

export const Spinner = () => <LoaderCircle aria-hidden className="size-4 animate-spin" />;

const buttonVariants = cva(
  "inline-flex shrink-0 items-center justify-center gap-2 rounded-control border font-[520] whitespace-nowrap transition-[color,background-color,border-color,scale] duration-150 active:scale-[0.98] disabled:opacity-55 [&_svg]:size-4 [&_svg]:shrink-0",
  {
    variants: {
      variant: {
        primary: "border-transparent bg-violet text-white hover:bg-violet-bright",
        outline: "border-line-strong text-text hover:border-white/25 hover:bg-white/5",
        ghost: "border-transparent text-dim hover:bg-white/6 hover:text-text",
        danger: "border-transparent bg-danger-strong text-white hover:bg-danger-bright",
      },
      size: {
        normal: "h-8.5 px-3.5 max-sm:h-10",
        small: "h-7.5 px-2.5 text-sm max-sm:h-9",
        large: "h-10 px-5 text-[14.5px]",
        icon: "size-8.5 max-sm:size-10",
        /** Beside the label of a field, in the height of its line. */
        label: "-my-1.5 h-7.5 gap-1.5 px-1.5 text-xs",
      },
    },
    defaultVariants: { variant: "outline", size: "normal" },
  },
);

type ButtonProps = ComponentProps<"button"> &
  VariantProps<typeof buttonVariants> & {
    /** Style the one child instead, for links that act like buttons. */
    asChild?: boolean;
    /** The action is under way: say so, and take no second click. */
    pending?: boolean;
  };

export function Button({ variant, size, asChild, pending, className, children, disabled, ...rest }: ButtonProps) {
  const classes = cn(buttonVariants({ variant, size }), className);
  if (asChild) {
    return (
      <Slot.Root className={classes} {...rest}>
        {children}
      </Slot.Root>
    );
  }
  return (
    <button type="button" className={classes} disabled={disabled || pending} aria-busy={pending || undefined} {...rest}>
      {pending && <Spinner />}
      {children}
    </button>
  );
}

type CopyButtonProps = { text: string; label: string; className?: string };

export function CopyButton({ text, label, className }: CopyButtonProps) {
  const [outcome, setOutcome] = useState<"copied" | "refused" | null>(null);

  useEffect(() => {
    if (outcome === null) return;
    const timer = setTimeout(() => setOutcome(null), 2500);
    return () => clearTimeout(timer);
  }, [outcome]);

  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setOutcome("copied");
    } catch {
      // Browsers offer no clipboard to pages served over plain http from another machine.
      setOutcome("refused");
    }
  }

  return (
    <Button size="small" aria-label={label} onClick={() => void copy()} className={className}>
      {outcome === "copied" ? <Check aria-hidden className="text-success-soft" /> : <Copy aria-hidden />}
      <span aria-live="polite">{outcome === "copied" ? "Copied" : outcome === "refused" ? "Copy manually" : "Copy"}</span>
    </Button>
  );
}
