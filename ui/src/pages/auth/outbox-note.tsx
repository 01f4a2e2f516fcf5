import { useQuery } from "@tanstack/react-query";
import { authStateQuery } from "@/api/auth-state";

/** Nobody should wait for a mail that cannot come. */
export function OutboxNote() {
  const { data: state } = useQuery(authStateQuery);
  if (state?.mail !== "outbox") return null;
  return (
    <p className="mt-2 text-sm text-dim">
      This server has no mail server configured, so nothing will arrive in your inbox. The link is in the server's log and
      in its outbox folder: ask whoever runs the server to pass it on.
    </p>
  );
}
