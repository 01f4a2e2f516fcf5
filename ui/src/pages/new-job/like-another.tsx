import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { jobQuery } from "@/api/jobs";
import type { Job } from "@/api/types";
import { Loaded } from "@/components/loaded";
import { PagePending } from "@/shell/page-pending";

/** Waits for the job that a form starts like, if there is one. */
export function LikeAnother({ id, children }: { id: string | undefined; children: (job?: Job) => ReactNode }) {
  const job = useQuery({ ...jobQuery(id ?? ""), enabled: id !== undefined });
  if (id === undefined) return children();
  return (
    <Loaded query={job} skeleton={<PagePending />}>
      {(loaded) => children(loaded)}
    </Loaded>
  );
}
