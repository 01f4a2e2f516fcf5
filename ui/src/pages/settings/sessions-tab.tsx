/** Devices that are signed in. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { endOtherSessions, endSession, sessionsQuery } from "@/api/account";
import type { Session } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { ConfirmDialog } from "@/components/dialog";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Badge } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";

type PendingSignOut = { kind: "one"; session: Session } | { kind: "others" };

export function SessionsTab() {
  const sessions = useQuery(sessionsQuery);
  const [confirming, setConfirming] = useState<PendingSignOut | null>(null);
  const others = sessions.data?.items.filter((session) => !session.current).length ?? 0;

  async function end() {
    if (confirming?.kind === "one") {
      await endSession(confirming.session.id);
      toast(`${deviceName(confirming.session.user_agent)} was signed out.`);
    } else {
      await endOtherSessions();
      toast("All other devices were signed out.");
    }
  }

  const columns: Column<Session>[] = [
    {
      header: "Device",
      lead: true,
      cell: (session) => (
        <span className="flex flex-wrap items-center gap-x-2.5 gap-y-1 font-[540]" title={session.user_agent ?? undefined}>
          {deviceName(session.user_agent)}
          {session.current && <Badge tone="good">this device</Badge>}
        </span>
      ),
    },
    { header: "IP address", cell: (session) => session.ip_address },
    { header: "Last seen", cell: (session) => <TimeAgo at={session.last_seen_at} /> },
    { header: "Signed in", cell: (session) => <TimeAgo at={session.created_at} /> },
    { header: "Expires", cell: (session) => <TimeAgo at={session.expires_at} /> },
    {
      header: "Actions",
      quiet: true,
      end: true,
      cell: (session) =>
        session.current ? null : (
          <Button
            size="small"
            aria-label={`Sign out ${deviceName(session.user_agent)}`}
            onClick={() => setConfirming({ kind: "one", session })}
          >
            Sign out
          </Button>
        ),
    },
  ];

  return (
    <Card>
      <CardHeader title="Signed-in devices">
        {others > 0 && (
          <Button size="small" onClick={() => setConfirming({ kind: "others" })}>
            Sign out all other devices
          </Button>
        )}
      </CardHeader>
      <Loaded query={sessions} skeleton={<SkeletonRows rows={3} />}>
        {({ items }) => <DataTable label="Sessions" columns={columns} rows={items} rowKey={(session) => session.id} />}
      </Loaded>
      <ConfirmDialog
        open={confirming !== null}
        onOpenChange={(open) => !open && setConfirming(null)}
        title={confirming?.kind === "one" ? `Sign out ${deviceName(confirming.session.user_agent)}?` : "Sign out all other devices?"}
        action="Sign out"
        onConfirm={end}
      >
        {confirming?.kind === "one"
          ? "The device has to sign in again. Unsaved text in its browser is not lost."
          : "Only this device stays signed in."}
      </ConfirmDialog>
    </Card>
  );
}

const BROWSERS: [RegExp, string][] = [
  [/Edg\//, "Edge"],
  [/OPR\//, "Opera"],
  [/Firefox\//, "Firefox"],
  [/Chrom(e|ium)\//, "Chrome"],
  [/Safari\//, "Safari"],
  [/^bloom\//i, "Bloom command line"],
  [/^(curl|python|httpx)/i, "A script"],
];

const SYSTEMS: [RegExp, string][] = [
  [/iPhone|iPad/, "iOS"],
  [/Android/, "Android"],
  [/Windows/, "Windows"],
  [/Mac OS X|Macintosh/, "macOS"],
  [/Linux|X11/, "Linux"],
];

const first = (table: [RegExp, string][], text: string) => table.find(([pattern]) => pattern.test(text))?.[1];

/** "Firefox on Linux", from what a browser says about itself. A hint for people, never a fact to decide on. */
export function deviceName(userAgent: string | null): string {
  if (!userAgent) return "Unknown device";
  const browser = first(BROWSERS, userAgent);
  const system = first(SYSTEMS, userAgent);
  if (!browser) return system ? `A browser on ${system}` : "Unknown device";
  return system ? `${browser} on ${system}` : browser;
}
