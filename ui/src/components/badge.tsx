import { type VariantProps, cva } from "class-variance-authority";
import type { ComponentProps } from "react";
import { cn } from "./class-names";

const badgeVariants = cva("inline-flex items-center gap-1.5 rounded-full border px-2 text-2xs leading-5 font-[540] whitespace-nowrap", {
  variants: {
    tone: {
      neutral: "border-line-strong text-dim",
      violet: "border-violet-soft/35 bg-violet/15 text-violet-soft",
      teal: "border-teal-soft/35 bg-teal/12 text-[#6fe0ea]",
      good: "border-success/35 bg-success/12 text-success-soft",
      bad: "border-danger/40 bg-danger/12 text-danger-soft",
    },
  },
  defaultVariants: { tone: "neutral" },
});

export function Badge({ tone, className, ...rest }: ComponentProps<"span"> & VariantProps<typeof badgeVariants>) {
  return <span className={cn(badgeVariants({ tone }), className)} {...rest} />;
}
