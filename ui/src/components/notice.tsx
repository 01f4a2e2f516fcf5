import { type VariantProps, cva } from "class-variance-authority";
import type { ComponentProps } from "react";
import { cn } from "./class-names";

const noticeVariants = cva("rounded-card border px-3.5 py-2.5 [&_a]:underline [&_a]:underline-offset-2", {
  variants: {
    tone: {
      plain: "border-line-strong bg-white/4",
      good: "border-success/35 bg-success/8",
      bad: "border-danger/40 bg-danger/10",
      attention: "border-warning/30 bg-warning/8",
    },
  },
  defaultVariants: { tone: "plain" },
});

/** A few sentences that stay on the page, as opposed to a toast that passes. */
export function Notice({ tone, className, ...rest }: ComponentProps<"div"> & VariantProps<typeof noticeVariants>) {
  return <div className={cn(noticeVariants({ tone }), className)} {...rest} />;
}
