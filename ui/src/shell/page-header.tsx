import type { ReactNode } from "react";

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
        <h1 className="text-2xl font-[640] tracking-[-0.015em] break-words">{title}</h1>
        {note && <p className="mt-0.5 text-dim">{note}</p>}
      </div>
      {children && <div className="flex flex-wrap gap-2">{children}</div>}
    </header>
  );
}
