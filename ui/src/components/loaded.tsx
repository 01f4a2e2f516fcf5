/** The states of content that is fetched: skeleton, error, empty, being updated, and loaded. */
import type { UseQueryResult } from "@tanstack/react-query";
import { type LucideIcon, TriangleAlert } from "lucide-react";
import type { ComponentProps, ReactNode } from "react";
import { useFailure } from "@/api/client";
import { sentenceOf } from "@/api/problem";
import { Button } from "./button";
import { cn } from "./class-names";

type ErrorPanelProps = { error: unknown; onRetry: () => void; pending?: boolean };

/** Why something could not be fetched, and a button that fetches it again. */
export function ErrorPanel({ error, onRetry, pending }: ErrorPanelProps) {
  return (
    <div
      role="alert"
      className="flex flex-wrap items-center gap-x-4 gap-y-3 rounded-card border border-danger/35 bg-danger/8 px-4 py-3"
    >
      <TriangleAlert aria-hidden className="size-4.5 shrink-0 text-danger-soft" />
      <p className="min-w-0 flex-1 basis-60">{sentenceOf(error)}</p>
      <Button size="small" pending={pending} onClick={onRetry}>
        Try again
      </Button>
    </div>
  );
}

/** A shimmering placeholder. Hidden from screen readers: `Loading` says once that something is loading. */
export function Skeleton({ className }: { className?: string }) {
  return (
    <div
      aria-hidden
      className={cn(
        "h-4 animate-shimmer rounded-md bg-[linear-gradient(100deg,var(--color-line)_35%,var(--color-line-strong)_50%,var(--color-line)_65%)] bg-[length:220%_100%]",
        className,
      )}
    />
  );
}

/** Rows of about the height of what is coming, so that nothing jumps when it arrives. */
export function SkeletonRows({ rows = 4, className }: { rows?: number; className?: string }) {
  return (
    <div className="space-y-3">
      {Array.from({ length: rows }, (_, row) => (
        <Skeleton key={row} className={cn("h-9", className)} />
      ))}
    </div>
  );
}

/** Three cards of about the height of what is coming. */
export function SkeletonCards({ className }: { className: string }) {
  return (
    <div className="grid gap-3.5 sm:grid-cols-2 xl:grid-cols-3">
      {[0, 1, 2].map((card) => (
        <Skeleton key={card} className={cn("rounded-card", className)} />
      ))}
    </div>
  );
}

type Fetched<T> = Pick<UseQueryResult<T>, "data" | "error" | "isFetching" | "refetch">;

/** Why what a part of a page needs could not be fetched; nothing while it is there or under way. */
export function LoadFailure({ query, className }: { query: Fetched<unknown>; className?: string }) {
  const failure = useFailure(query.error);
  if (query.data !== undefined || !failure) return null;
  return (
    <div className={className}>
      <ErrorPanel error={failure} pending={query.isFetching} onRetry={() => void query.refetch()} />
    </div>
  );
}

type LoadedProps<T> = {
  query: Fetched<T>;
  skeleton: ReactNode;
  children: (data: T) => ReactNode;
};

/** The three states of anything fetched: waiting, failed with a way out, and there. */
export function Loaded<T>({ query, skeleton, children }: LoadedProps<T>) {
  const failure = useFailure(query.error);
  // What was once shown stays, even when refreshing it fails.
  if (query.data !== undefined) return children(query.data);
  if (failure) return <LoadFailure query={query} />;
  return (
    <div role="status">
      <span className="sr-only">Loading</span>
      {skeleton}
    </div>
  );
}

type UpdatingProps = ComponentProps<"div"> & {
  /** The content belongs to an earlier request; its successor is on the way. */
  pending: boolean;
};

/** Content that is out of date for a moment. It keeps its colours, since dimmed text is too faint to read; a line above moves. */
export function Updating({ pending, className, children, ...rest }: UpdatingProps) {
  return (
    <div {...rest} aria-busy={pending} className={cn("relative", className)}>
      {pending && (
        <span
          aria-hidden
          className="absolute inset-x-0 -top-2 h-0.5 animate-shimmer rounded-full bg-[linear-gradient(100deg,transparent_35%,var(--color-violet-bright)_50%,transparent_65%)] bg-[length:220%_100%]"
        />
      )}
      {children}
    </div>
  );
}

type EmptyStateProps = {
  icon: LucideIcon;
  title: string;
  /** The whole page says nothing else, so the title is its heading. */
  wholePage?: boolean;
  children?: ReactNode;
  action?: ReactNode;
  /** Shown next to other content, while there is nothing in it yet. */
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
      {children && <div className="mt-1.5 w-full max-w-lg text-dim">{children}</div>}
      {action && <div className="mt-5">{action}</div>}
    </div>
  );
}
