/** Parts of every page: brand, header, title, notice, transition, and what is shown while its code loads. */
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useChildMatches } from "@tanstack/react-router";
import { type ReactNode, useEffect } from "react";
import { authStateQuery } from "@/api/auth";
import { queryClient, useUnreachable } from "@/api/client";
import { cn } from "@/components/class-names";
import { Skeleton } from "@/components/loaded";
import { Notice } from "@/components/notice";

const PETALS = [
  { turn: 0, className: "stroke-violet-soft" },
  { turn: 90, className: "stroke-teal-soft" },
  { turn: 180, className: "stroke-violet-soft" },
  { turn: 270, className: "stroke-teal-soft" },
];

export function BloomMark({ className }: { className?: string }) {
  return (
    <svg aria-hidden viewBox="0 0 24 24" fill="none" strokeWidth="1.8" className={cn("size-5.5", className)}>
      {PETALS.map(({ turn, className: colour }) => (
        <ellipse key={turn} cx="12" cy="6.6" rx="3.1" ry="4.6" transform={`rotate(${turn} 12 12)`} className={colour} />
      ))}
    </svg>
  );
}

export function Brand({ to, className }: { to: "/" | "/dashboard"; className?: string }) {
  return (
    <Link to={to} className={cn("flex w-max items-center gap-2.5 rounded-lg text-lg font-[650] tracking-[-0.01em] hover:text-white", className)}>
      <BloomMark />
      GPU Bloom
    </Link>
  );
}

/** A page with nothing around it but the way home. */
export function BarePage({ children }: { children: ReactNode }) {
  return (
    <div className="mx-auto flex min-h-dvh max-w-5xl flex-col px-5 py-5">
      <header>
        <Brand to="/" />
      </header>
      <main className="grid flex-1 place-items-center">{children}</main>
    </div>
  );
}

/**
 * The page inside a layout, fading in when another one takes its place. The key is the route, not the address:
 * a page whose search or parameters change stays mounted and keeps its state.
 */
export function PageOutlet() {
  const page = useChildMatches({ select: (matches) => matches[0]?.routeId });
  return (
    <div key={page} className="animate-fade">
      <Outlet />
    </div>
  );
}

type PageHeaderProps = { title: ReactNode; crumbs?: ReactNode; note?: ReactNode; children?: ReactNode };

export function PageHeader({ title, crumbs, note, children }: PageHeaderProps) {
  return (
    <header className="mb-5 flex flex-wrap items-end justify-between gap-x-5 gap-y-3">
      <div className="min-w-0">
        {crumbs && (
          <nav aria-label="Breadcrumb" className="mb-1 text-sm text-dim">
            {crumbs}
          </nav>
        )}
        <h1 className="text-2xl font-[640] tracking-[-0.015em] wrap-anywhere">{title}</h1>
        {note && <p className="mt-0.5 text-dim">{note}</p>}
      </div>
      {children && <div className="flex flex-wrap gap-2 max-sm:has-[>:nth-child(2)]:w-full">{children}</div>}
    </header>
  );
}

export function usePageTitle(title: string) {
  useEffect(() => {
    document.title = title === "GPU Bloom" ? title : `${title} · GPU Bloom`;
  }, [title]);
}

/** Shown inside the app while the code of a page is on its way. */
export function PagePending() {
  return (
    <div role="status">
      <span className="sr-only">Loading</span>
      <Skeleton className="mb-6 h-7 w-52" />
      <Skeleton className="mb-3.5 h-24 rounded-card" />
      <Skeleton className="h-56 rounded-card" />
    </div>
  );
}

export function BarePagePending() {
  return (
    <div className="px-4 py-6 sm:px-7">
      <PagePending />
    </div>
  );
}

const ASK_EVERY = 3_000;

/** Says on every page that the server does not answer; asks until it does. */
export function UnreachableNotice() {
  return useUnreachable() ? <Unreachable /> : null;
}

function Unreachable() {
  useQuery({ ...authStateQuery, refetchInterval: ASK_EVERY });
  // The server answers again: what could not be read meanwhile is read now.
  useEffect(() => () => void queryClient.refetchQueries({ type: "active", stale: true }), []);
  return (
    <Notice role="status" tone="attention" className="rounded-none border-x-0 border-t-0 px-4 sm:px-7 print:hidden">
      <b className="mr-2 font-[570]">The server cannot be reached.</b>
      <span className="text-dim">This page may be incomplete or out of date. It is updated when the server answers again.</span>
    </Notice>
  );
}
