import { useQuery } from "@tanstack/react-query";
import { UserPlus } from "lucide-react";
import { useState } from "react";
import { changePerson, peopleQuery } from "@/api/people";
import { sentenceOf } from "@/api/problem";
import type { Person, Role } from "@/api/types";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/confirm-dialog";
import { type Column, DataTable } from "@/components/data-table";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { Select } from "@/components/select";
import { SkeletonRows } from "@/components/skeleton";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { useCurrentUser } from "@/shell/current-user";
import { InviteDialog } from "./invite-dialog";
import { ROLES } from "./roles";

export function PeopleTab() {
  const me = useCurrentUser();
  const people = useQuery(peopleQuery);
  const [inviting, setInviting] = useState(false);
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
      header: "Person",
      lead: true,
      cell: (person) => (
        <>
          <div className="flex flex-wrap items-center gap-x-2 font-[540]">
            {person.name}
            {person.id === me.id && <Badge>you</Badge>}
            {person.disabled && <Badge tone="bad">locked</Badge>}
            {!person.emailVerified && <Badge>not confirmed</Badge>}
          </div>
          <div className="text-sm break-all text-dim">{person.email}</div>
        </>
      ),
    },
    { header: "Last seen", cell: (person) => (person.lastSeenAt ? <TimeAgo at={person.lastSeenAt} /> : "never") },
    { header: "Joined", cell: (person) => <TimeAgo at={person.createdAt} /> },
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
      <CardHeader title="People">
        <Button variant="primary" onClick={() => setInviting(true)}>
          <UserPlus aria-hidden />
          Invite
        </Button>
      </CardHeader>
      {failure && (
        <Notice tone="bad" role="alert" className="mb-3">
          {failure}
        </Notice>
      )}
      <Loaded query={people} skeleton={<SkeletonRows rows={4} className="h-11" />}>
        {({ items }) => <DataTable label="People" columns={columns} rows={items} rowKey={(person) => person.id} />}
      </Loaded>
      <InviteDialog open={inviting} onOpenChange={setInviting} />
      <ConfirmDialog
        open={locking !== null}
        onOpenChange={(open) => !open && setLocking(null)}
        title={`Lock the account of ${locking?.name ?? ""}?`}
        action="Lock account"
        onConfirm={async () => {
          if (locking === null) return;
          await changePerson(locking.id, { disabled: true });
          toast(`${locking.name} was signed out and cannot sign in.`);
        }}
      >
        They are signed out everywhere and cannot sign in until you unlock the account. Their work is kept.
      </ConfirmDialog>
    </Card>
  );
}
