import { useQueryClient } from "@tanstack/react-query";
import { useRouter } from "@tanstack/react-router";
import { setSignedIn } from "@/api/auth-state";
import type { SignedIn } from "@/api/types";
import { safeNextPath } from "./next-path";

/** What follows every way of signing in: remember who it is, and go where they were going. */
export function useSignInDone(next?: string) {
  const router = useRouter();
  const queryClient = useQueryClient();
  return (answer: SignedIn) => {
    // Whoever used this page before must not shine through.
    queryClient.removeQueries({ predicate: (query) => query.queryKey[0] !== "auth" });
    setSignedIn(answer);
    router.history.replace(safeNextPath(next));
  };
}
