import { useInfiniteQuery } from "@tanstack/react-query";
import { ScrollText } from "lucide-react";
import { auditQuery } from "@/api/people";
import { sentenceOf } from "@/api/problem";
import type { AuditEvent } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { SkeletonRows } from "@/components/skeleton";
import { TimeAgo } from "@/components/time-ago";
import { actionText, detailsText, subjectText } from "@/text/audit-text";

const columns: Column<AuditEvent>[] = [
  {
    header: "Action",
    lead: true,
    cell: (event) => (
      <span className="font-[540]" title={event.action}>
        {actionText(event.action)}
      </span>
    ),
  },
  {
    header: "Who",
    cell: (event) => (event.actor ? <span title={event.actor.email}>{event.actor.name}</span> : <span className="text-dim">nobody signed in</span>),
  },
  { header: "What", cell: (event) => <Subject event={event} /> },
  { header: "From", cell: (event) => event.ipAddress },
  { header: "When", end: true, cell: (event) => <TimeAgo at={event.at} /> },
];

export function AuditTab() {
  const audit = useInfiniteQuery(auditQuery);
  return (
    <Card>
      <CardHeader title="Audit log" note="Newest first. Entries are never changed." />
      <Loaded query={audit} skeleton={<SkeletonRows rows={6} />}>
        {({ pages }) => {
          const events = pages.flatMap((page) => page.items);
          if (events.length === 0) return <EmptyState icon={ScrollText} title="Nothing has happened yet." />;
          return (
            <>
              <DataTable label="Audit log" columns={columns} rows={events} rowKey={(event) => event.id} />
              {audit.isFetchNextPageError && (
                <Notice tone="bad" role="alert" className="mt-3">
                  {sentenceOf(audit.error)}
                </Notice>
              )}
              {audit.hasNextPage && (
                <div className="mt-4 text-center">
                  <Button pending={audit.isFetchingNextPage} onClick={() => void audit.fetchNextPage()}>
                    Show older entries
                  </Button>
                </div>
              )}
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}

function Subject({ event }: { event: AuditEvent }) {
  const details = detailsText(event.details);
  return (
    <span className="break-words" title={event.subject}>
      {subjectText(event)}
      {details && <span className="block text-xs text-dim">{details}</span>}
    </span>
  );
}
