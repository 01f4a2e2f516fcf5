import type { LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { cn } from "./class-names";

type EmptyStateProps = {
  icon: LucideIcon;
  title: string;
  /** The whole page says nothing else, so the title is its heading. */
  wholePage?: boolean;
  children?: ReactNode;
  action?: ReactNode;
  /** Beside other things, and of no use yet. */
  small?: boolean;
};

/** Nothing here yet: says so, and offers the next step. */
export function EmptyState({ icon: Icon, title, wholePage, children, action, small }: EmptyStateProps) {
  const Title = wholePage ? "h1" : "p";
  return (
    <div className={cn("flex flex-col items-center px-4 text-center", small ? "py-4" : "py-10")}>
      {!small && (
        <div className="mb-4 grid size-11 place-items-center rounded-full border border-line-strong bg-white/4 text-violet-soft">
          <Icon aria-hidden className="size-5" />
        </div>
      )}
      <Title className="max-w-md text-lg font-[560]">{title}</Title>
      {children && <div className="mt-1.5 max-w-lg text-dim">{children}</div>}
      {action && <div className="mt-5">{action}</div>}
    </div>
  );
}
