/** People of this server. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { changePerson, peopleQuery } from "@/api/account";
import { sentenceOf } from "@/api/problem";
import type { Person, Role } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { ConfirmDialog } from "@/components/dialog";
import { Select } from "@/components/input";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Badge, Notice } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { Avatar } from "@/shell/avatar";
import { useCurrentUser } from "@/shell/session";
import { InvitationsCard, ROLES } from "./invitations-card";

export const PeopleTab = () => (
  <div className="grid gap-3.5">
    <PeopleCard />
    <InvitationsCard />
  </div>
);

function PeopleCard() {
  const me = useCurrentUser();
  const people = useQuery(peopleQuery);
  const [locking, setLocking] = useState<Person | null>(null);
  const [failure, setFailure] = useState<string | null>(null);

  async function change(person: Person, wanted: { role?: Role; disabled?: boolean }, done: string) {
    setFailure(null);
    try {
      await changePerson(person.id, wanted);
      toast(done);
    } catch (error) {
      setFailure(sentenceOf(error));
    }
  }

  const columns: Column<Person>[] = [
    {
      header: "User",
      lead: true,
      cell: (person) => (
        <div className="flex items-center gap-2.5">
          <Avatar person={person} />
          <div className="min-w-0">
            <div className="flex flex-wrap items-center gap-x-2 font-[540]">
              {person.name}
              {person.id === me.id && <Badge>you</Badge>}
              {person.disabled && <Badge tone="bad">locked</Badge>}
              {!person.email_verified && <Badge>not confirmed</Badge>}
            </div>
            <div className="text-sm break-all text-dim">{person.email}</div>
          </div>
        </div>
      ),
    },
    { header: "Last seen", cell: (person) => (person.last_seen_at ? <TimeAgo at={person.last_seen_at} /> : "never") },
    { header: "Joined", cell: (person) => <TimeAgo at={person.created_at} /> },
    {
      header: "Role",
      cell: (person) => (
        <Select
          aria-label={`Role of ${person.name}`}
          className="w-40 max-md:ml-auto"
          options={ROLES}
          value={person.role}
          disabled={person.id === me.id}
          onChange={(event) => {
            const role = event.target.value === "admin" ? "admin" : "member";
            void change(person, { role }, `${person.name} is now ${role === "admin" ? "an administrator" : "a member"}.`);
          }}
        />
      ),
    },
    {
      header: "Actions",
      quiet: true,
      end: true,
      cell: (person) => {
        if (person.id === me.id) return null;
        return person.disabled ? (
          <Button size="small" aria-label={`Unlock ${person.name}`} onClick={() => void change(person, { disabled: false }, `${person.name} can sign in again.`)}>
            Unlock
          </Button>
        ) : (
          <Button size="small" aria-label={`Lock ${person.name}`} onClick={() => setLocking(person)}>
            Lock
          </Button>
        );
      },
    },
  ];

  return (
    <Card>
      <CardHeader title="Users" />
      {failure && (
        <Notice tone="bad" role="alert" className="mb-3">
          {failure}
        </Notice>
      )}
      <Loaded query={people} skeleton={<SkeletonRows rows={4} className="h-11" />}>
        {({ items }) => <DataTable label="Users" columns={columns} rows={items} rowKey={(person) => person.id} />}
      </Loaded>
      <ConfirmDialog
        open={locking !== null}
        onOpenChange={(open) => !open && setLocking(null)}
        title={`Lock the account of ${locking?.name ?? ""}?`}
        action="Lock account"
        onConfirm={async () => {
          if (locking === null) return;
          await changePerson(locking.id, { disabled: true });
          toast(`The account of ${locking.name} is locked.`);
        }}
      >
        The user is signed out on all devices and cannot sign in until you unlock the account. The projects and jobs of the user are kept.
      </ConfirmDialog>
    </Card>
  );
}
