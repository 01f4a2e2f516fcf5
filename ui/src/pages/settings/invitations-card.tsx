/** Invitations: who was invited and has not joined yet, and inviting somebody. */
import { useQuery } from "@tanstack/react-query";
import { UserPlus } from "lucide-react";
import { useState } from "react";
import { invitationsQuery, invite, revokeInvitation } from "@/api/account";
import { InvitationIn } from "@/api/request-fields";
import type { CreatedInvitation, Invitation } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Badge } from "@/components/notice";
import { exactTime, TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { SelectField, TextField } from "@/forms/field";
import { emailAddress } from "@/forms/rules";
import { z } from "@/forms/zod";
import { SecretOnce } from "./tokens-tab";

export const ROLES = [
  ["member", "Member"],
  ["admin", "Administrator"],
] as const;

export function InvitationsCard() {
  const invitations = useQuery(invitationsQuery);
  const [inviting, setInviting] = useState(false);
  const [revoking, setRevoking] = useState<Invitation | null>(null);

  const columns: Column<Invitation>[] = [
    {
      header: "Email",
      lead: true,
      cell: ({ email, role }) => (
        <span className="flex flex-wrap items-center gap-x-2 font-[540]">
          <span className="break-all">{email}</span>
          {role === "admin" && <Badge tone="violet">administrator</Badge>}
        </span>
      ),
    },
    { header: "Invited by", cell: ({ inviter }) => <span title={inviter.email}>{inviter.name}</span> },
    { header: "Sent", cell: (invitation) => <TimeAgo at={invitation.created_at} /> },
    { header: "Expires", cell: (invitation) => <TimeAgo at={invitation.expires_at} /> },
    {
      header: "Actions",
      quiet: true,
      end: true,
      cell: (invitation) => (
        <Button size="small" aria-label={`Revoke the invitation of ${invitation.email}`} onClick={() => setRevoking(invitation)}>
          Revoke
        </Button>
      ),
    },
  ];

  return (
    <Card>
      <CardHeader title="Invitations">
        <Button variant="primary" onClick={() => setInviting(true)}>
          <UserPlus aria-hidden />
          Invite
        </Button>
      </CardHeader>
      <Loaded query={invitations} skeleton={<SkeletonRows rows={2} />}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState icon={UserPlus} title="No open invitations." />
          ) : (
            <DataTable label="Invitations" columns={columns} rows={items} rowKey={(invitation) => invitation.id} />
          )
        }
      </Loaded>
      <Dialog open={inviting} onOpenChange={setInviting} title="Invite a user">
        <InviteForm onClose={() => setInviting(false)} />
      </Dialog>
      <ConfirmDialog
        open={revoking !== null}
        onOpenChange={(open) => !open && setRevoking(null)}
        title={`Revoke the invitation of ${revoking?.email ?? ""}?`}
        action="Revoke invitation"
        onConfirm={async () => {
          if (revoking === null) return;
          await revokeInvitation(revoking.id);
          toast(`The invitation of ${revoking.email} was revoked.`);
        }}
      >
        The link in the invitation stops working at once.
      </ConfirmDialog>
    </Card>
  );
}

const rules = z.object({ email: emailAddress, role: z.enum(InvitationIn.role.enum) });

function InviteForm({ onClose }: { onClose: () => void }) {
  const [invitation, setInvitation] = useState<CreatedInvitation | null>(null);
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
