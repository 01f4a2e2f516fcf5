import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ErrorPanel } from "./error-panel";

type LoadedProps<T> = {
  query: Pick<UseQueryResult<T>, "data" | "error" | "isFetching" | "refetch">;
  skeleton: ReactNode;
  children: (data: T) => ReactNode;
};

/** The three states of anything fetched: waiting, failed with a way out, and there. */
export function Loaded<T>({ query, skeleton, children }: LoadedProps<T>) {
  // What was once shown stays, even when refreshing it fails.
  if (query.data !== undefined) return children(query.data);
  if (query.error) {
    return <ErrorPanel error={query.error} pending={query.isFetching} onRetry={() => void query.refetch()} />;
  }
  return (
    <div role="status">
      <span className="sr-only">Loading</span>
      {skeleton}
    </div>
  );
}
