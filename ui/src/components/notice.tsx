/** Notices and badges, and server texts with code between backticks. */
import { cva, type VariantProps } from "class-variance-authority";
import { type ComponentProps, useEffect, useRef } from "react";
import { cn } from "./class-names";

const badgeVariants = cva("inline-flex items-center gap-1.5 rounded-full border px-2 text-2xs leading-5 font-[540] whitespace-nowrap", {
  variants: {
    tone: {
      neutral: "border-line-strong text-dim",
      violet: "border-violet-soft/35 bg-violet/15 text-violet-soft",
      teal: "border-teal-soft/35 bg-teal/12 text-teal-pale",
      good: "border-success/35 bg-success/12 text-success-soft",
      bad: "border-danger/40 bg-danger/12 text-danger-soft",
      attention: "border-warning/35 bg-warning/10 text-warning",
    },
  },
  defaultVariants: { tone: "neutral" },
});

export function Badge({ tone, className, ...rest }: ComponentProps<"span"> & VariantProps<typeof badgeVariants>) {
  return <span className={cn(badgeVariants({ tone }), className)} {...rest} />;
}

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

/** Why a form was not accepted. Takes the focus, so that a screen reader reads it and a person at the end of the form sees it. */
export function FailureNotice({ failures }: { failures: readonly string[] }) {
  const notice = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (failures.length > 0) notice.current?.focus();
  }, [failures]);
  if (failures.length === 0) return null;
  return (
    <Notice ref={notice} tabIndex={-1} tone="bad" role="alert" className="mb-3.5 grid gap-1 wrap-anywhere">
      {failures.map((failure) => (
        <p key={failure}>{failure}</p>
      ))}
    </Notice>
  );
}

/** A sentence of the server: what stands between backticks is to be typed. */
export function TextWithCode({ text }: { text: string }) {
  return text.split("`").map((part, index) =>
    index % 2 === 0 ? (
      part
    ) : (
      // The parts of one sentence never change their order.
      <code key={index} className="font-mono text-[0.92em] break-all text-text">
        {part}
      </code>
    ),
  );
}
