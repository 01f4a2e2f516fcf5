import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { authStateQuery } from "@/api/auth";
import { queryClient, useUnreachable } from "@/api/client";
import { Notice } from "@/components/notice";

const ASK_EVERY = 3_000;

/** Says that the page may be out of date because the server does not answer; asks until it does. */
export function UnreachableNotice() {
  return useUnreachable() ? <Unreachable /> : null;
}

function Unreachable() {
  useQuery({ ...authStateQuery, refetchInterval: ASK_EVERY });
  // The server answers again: what could not be read meanwhile is read now.
  useEffect(() => () => void queryClient.refetchQueries({ type: "active", stale: true }), []);
  return (
    <Notice role="status" tone="attention" className="mb-4">
      <b className="mr-2 font-[570]">The server cannot be reached.</b>
      <span className="text-dim">This page shows the last known state. It is updated when the server answers again.</span>
    </Notice>
  );
}
