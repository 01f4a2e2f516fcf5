import { useState } from "react";
import { createToken } from "@/api/account";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { ApiForm } from "@/forms/api-form";
import { SelectField, TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { useCurrentUser } from "@/shell/current-user";
import { SecretOnce } from "./secret-once";
import { ScopeChoices } from "./scope-choices";

const LIFETIMES = [
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["365", "1 year"],
] as const;

const rules = z.object({
  name: z.string().trim().min(1, "Give the token a name.").max(120, "A name can have at most 120 characters."),
  scopes: z.array(z.enum(["read", "write", "admin"])).min(1, "Choose at least one right."),
  expiresInDays: z.string().transform(Number).pipe(z.number().int().min(1).max(365)),
});

type NewTokenDialogProps = { open: boolean; onOpenChange: (open: boolean) => void };

export function NewTokenDialog({ open, onOpenChange }: NewTokenDialogProps) {
  return (
    <Dialog open={open} onOpenChange={onOpenChange} title="New API token">
      <NewToken onClose={() => onOpenChange(false)} />
    </Dialog>
  );
}

function NewToken({ onClose }: { onClose: () => void }) {
  const user = useCurrentUser();
  const [secret, setSecret] = useState<string | null>(null);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { name: "", scopes: ["read"], expiresInDays: "90" },
    submit: async (values) => setSecret((await createToken(values)).token),
  });

  if (secret !== null) {
    return (
      <SecretOnce secret={secret} label="Copy the token" onClose={onClose}>
        Copy the token now and keep it somewhere safe. It is not shown again.
      </SecretOnce>
    );
  }
  return (
    <ApiForm label="New API token" failure={failure} onSubmit={onSubmit}>
      <TextField label="Name" placeholder="Nightly training script" autoComplete="off" {...field("name")} />
      <ScopeChoices {...field("scopes")} admin={user.role === "admin"} />
      <SelectField label="Valid for" options={LIFETIMES} {...field("expiresInDays")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Create token
        </Button>
      </div>
    </ApiForm>
  );
}
