import { useState } from "react";
import { invite } from "@/api/people";
import type { Invitation } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { emailAddress } from "@/forms/account-rules";
import { ApiForm } from "@/forms/api-form";
import { SelectField, TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { exactTime } from "@/text/relative-time";
import { ROLES } from "./roles";
import { SecretOnce } from "./secret-once";

const rules = z.object({ email: emailAddress, role: z.enum(["member", "admin"]) });

type InviteDialogProps = { open: boolean; onOpenChange: (open: boolean) => void };

export function InviteDialog({ open, onOpenChange }: InviteDialogProps) {
  return (
    <Dialog open={open} onOpenChange={onOpenChange} title="Invite somebody">
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
        Send this link to <span className="break-all">{invitation.email}</span>. It works once, until{" "}
        {exactTime(new Date(invitation.expiresAt))}, and is not shown again.
      </SecretOnce>
    );
  }
  return (
    <ApiForm label="Invite somebody" failure={failure} onSubmit={onSubmit}>
      <TextField label="Email" type="email" autoComplete="off" {...field("email")} />
      <SelectField label="Role" options={ROLES} help="Administrators manage people and see the audit log." {...field("role")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Create invitation
        </Button>
      </div>
    </ApiForm>
  );
}
