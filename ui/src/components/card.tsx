import type { ComponentProps, ReactNode } from "react";
import { cn } from "./class-names";

export function Card({ className, ...rest }: ComponentProps<"section">) {
  return <section className={cn("min-w-0 rounded-card border border-line bg-card px-4 py-3.5", className)} {...rest} />;
}

type CardHeaderProps = { title: string; note?: ReactNode; children?: ReactNode; id?: string };

export function CardHeader({ title, note, children, id }: CardHeaderProps) {
  return (
    <div className="mb-3 flex flex-wrap items-center justify-between gap-x-4 gap-y-1.5">
      <h2 id={id} className="text-[13px] font-[590]">
        {title}
      </h2>
      {/* Beside the title where something else stands at the right. */}
      {note && <div className={cn("text-xs text-dim", children && "mr-auto")}>{note}</div>}
      {children}
    </div>
  );
}
