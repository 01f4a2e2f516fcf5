/** People of this server and invitations. */
import { useQuery } from "@tanstack/react-query";
import { UserPlus } from "lucide-react";
import { useState } from "react";
import { changePerson, invite, peopleQuery } from "@/api/account";
import { sentenceOf } from "@/api/problem";
import { InvitationIn } from "@/api/request-fields";
import type { Invitation, Person, Role } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { Select } from "@/components/input";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Badge, Notice } from "@/components/notice";
import { exactTime, TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { SelectField, TextField } from "@/forms/field";
import { emailAddress } from "@/forms/rules";
import { z } from "@/forms/zod";
import { useCurrentUser } from "@/shell/session";
import { SecretOnce } from "./tokens-tab";

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
      header: "User",
      lead: true,
      cell: (person) => (
        <>
          <div className="flex flex-wrap items-center gap-x-2 font-[540]">
            {person.name}
            {person.id === me.id && <Badge>you</Badge>}
            {person.disabled && <Badge tone="bad">locked</Badge>}
            {!person.email_verified && <Badge>not confirmed</Badge>}
          </div>
          <div className="text-sm break-all text-dim">{person.email}</div>
        </>
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
      <CardHeader title="Users">
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
        {({ items }) => <DataTable label="Users" columns={columns} rows={items} rowKey={(person) => person.id} />}
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
          toast(`The account of ${locking.name} is locked.`);
        }}
      >
        The user is signed out on all devices and cannot sign in until you unlock the account. The projects and jobs of the user are kept.
      </ConfirmDialog>
    </Card>
  );
}

const ROLES = [
  ["member", "Member"],
  ["admin", "Administrator"],
] as const;

const rules = z.object({ email: emailAddress, role: z.enum(InvitationIn.role.enum) });

type InviteDialogProps = { open: boolean; onOpenChange: (open: boolean) => void };

function InviteDialog({ open, onOpenChange }: InviteDialogProps) {
  return (
    <Dialog open={open} onOpenChange={onOpenChange} title="Invite a user">
      <InviteForm onClose={() => onOpenChange(false)} />
    </Dialog>
  );
}

function InviteForm({ onClose }: { onClose: () => void }) {
  const [invitation, setInvitation] = useState<Invitation | null>(null);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { email: "", role: "member" },
    submit: async (values) => setInvitation(await invite(values)),
  });

  if (invitation !== null) {
    return (
      <SecretOnce secret={invitation.link} label="Copy the invitation link" onClose={onClose}>
        Send this link to <span className="break-all">{invitation.email}</span>. The link works once and expires on{" "}
        {exactTime(new Date(invitation.expires_at))}. The link is not shown again.
      </SecretOnce>
    );
  }
  return (
    <ApiForm label="Invite a user" failure={failure} onSubmit={onSubmit}>
      <TextField label="Email" type="email" autoComplete="off" {...field("email")} />
      <SelectField label="Role" options={ROLES} help="Administrators manage users and see the audit log." {...field("role")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Create invitation
        </Button>
      </div>
    </ApiForm>
  );
}
