import { Skeleton } from "@/components/skeleton";

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
