/** What the operator of this server should change, for admins. */
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { serverWarningsQuery } from "@/api/account";
import { Notice } from "@/components/notice";
import { SkeletonRows } from "@/components/loaded";

/** The page comes with its warnings: one that arrived later would push away what somebody is about to press. */
export function WithServerWarnings({ children }: { children: ReactNode }) {
  const warnings = useQuery(serverWarningsQuery);
  if (warnings.isPending) return <SkeletonRows rows={6} />;
  return (
    <>
      {warnings.data?.items.map((sentence) => (
        <Notice key={sentence} tone="attention" role="status" className="mb-4">
          {sentence}
        </Notice>
      ))}
      {children}
    </>
  );
}
