/** The audit log. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Download, ScrollText } from "lucide-react";
import { useState } from "react";
import { type AuditFilter, auditExportAddress, auditQuery, NO_FILTER, peopleQuery } from "@/api/account";
import { sentenceOf } from "@/api/problem";
import type { AuditEvent } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { Input, SearchBox, Select } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";

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
    header: "User",
    cell: (event) => (event.actor ? <span title={event.actor.email}>{event.actor.name}</span> : <span className="text-dim">not signed in</span>),
  },
  { header: "Object", cell: (event) => <Subject event={event} /> },
  { header: "IP address", cell: (event) => event.ip_address && <span className="whitespace-nowrap">{event.ip_address}</span> },
  { header: "Time", end: true, cell: (event) => <TimeAgo at={event.at} /> },
];

export function AuditTab() {
  const [filter, setFilter] = useState(NO_FILTER);
  const audit = useInfiniteQuery(auditQuery(filter));
  return (
    <Card>
      <CardHeader title="Audit log" note="Newest first. A hash chain shows whether an entry was changed.">
        <Button asChild>
          <a href={auditExportAddress(filter)} download>
            <Download aria-hidden />
            Export
          </a>
        </Button>
      </CardHeader>
      <Filters filter={filter} onChange={(change) => setFilter((before) => ({ ...before, ...change }))} />
      <Loaded query={audit} skeleton={<SkeletonRows rows={6} />}>
        {({ pages }) => {
          // What happened meanwhile moves entries on to the next page, where they come again.
          const events = [...new Map(pages.flatMap((page) => page.items.map((event) => [event.id, event] as const))).values()];
          if (events.length === 0) return <EmptyState icon={ScrollText} title="The audit log has no such entries." />;
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

function Filters({ filter, onChange }: { filter: AuditFilter; onChange: (change: Partial<AuditFilter>) => void }) {
  const people = useQuery(peopleQuery);
  const users = (people.data?.items ?? []).map(({ id, name, email }) => [id, `${name} (${email})`] as const);
  return (
    <div className="grid gap-x-3 sm:grid-cols-2 lg:grid-cols-3 [&>div]:max-w-none">
      <Select
        aria-label="User"
        options={[["", "All users"], ...users]}
        value={filter.actor}
        onChange={(event) => onChange({ actor: event.target.value })}
        className="mb-3.5"
      />
      <SearchBox label="Action, such as api token" text={filter.action} onSearch={(action) => onChange({ action })} />
      <SearchBox label="Project ID" text={filter.project} onSearch={(project) => onChange({ project })} />
      <DayInput label="From" day={filter.from} onChange={(from) => onChange({ from })} />
      <DayInput label="To" day={filter.to} onChange={(to) => onChange({ to })} />
    </div>
  );
}

function DayInput({ label, day, onChange }: { label: string; day: string; onChange: (day: string) => void }) {
  return (
    <label className="mb-3.5 flex items-center gap-2 text-sm text-dim">
      <span className="shrink-0">{label}</span>
      <Input type="date" value={day} onChange={(event) => onChange(event.target.value)} />
    </label>
  );
}

function Subject({ event }: { event: AuditEvent }) {
  const details = detailsText(event.details);
  return (
    <span className="block md:max-w-xs" title={event.subject}>
      {subjectText(event)}
      {details && <span className="block text-xs text-dim">{details}</span>}
    </span>
  );
}

const UUID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;

/** "api_token.created" in words: "API token created". */
export function actionText(action: string): string {
  const words = action.replaceAll(/[._]/g, " ").replace(/\bapi\b/, "API").replace(/\btotp\b/, "authenticator app");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** What it was done to: by name when the entry knows one, by the start of its id otherwise. */
export function subjectText({ subject, details }: Pick<AuditEvent, "subject" | "details">): string {
  if (typeof details.name === "string") return details.name;
  const [kind = "", id = ""] = subject.split(/:(.*)/s);
  return UUID.test(id) ? `${kind.replaceAll("_", " ")} ${id.slice(0, 8)}` : id || subject;
}

/** Everything else that was noted: "role: admin, disabled: no". */
export function detailsText(details: AuditEvent["details"]): string | null {
  const noted = Object.entries(details).filter(([key, value]) => key !== "name" && value !== null && value !== "");
  if (noted.length === 0) return null;
  return noted.map(([key, value]) => `${key.replaceAll("_", " ")}: ${valueText(value)}`).join(", ");
}

const valueText = (value: unknown) => (typeof value === "boolean" ? (value ? "yes" : "no") : String(value));
