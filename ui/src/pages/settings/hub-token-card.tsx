import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { hubTokenQuery, keepHubToken, removeHubToken } from "@/api/models";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/confirm-dialog";
import { Loaded } from "@/components/loaded";
import { Skeleton } from "@/components/skeleton";
import { toast } from "@/components/toasts";
import { ApiForm } from "@/forms/api-form";
import { PasswordField } from "@/forms/password-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";

const rules = z.object({ token: z.string().trim().min(1, "Paste the token.").max(500, "A token has at most 500 characters.").regex(/^\S*$/, "A token has no spaces.") });

/** The token that opens private and gated models and datasets on the Hub. It is never shown again. */
export function HubTokenCard() {
  const token = useQuery(hubTokenQuery);
  return (
    <Card>
      <CardHeader title="Hugging Face Hub token" note={token.data && <Badge tone={token.data.present ? "good" : "neutral"}>{token.data.present ? "present" : "none"}</Badge>} />
      <p className="mb-3.5 max-w-2xl text-dim">Fetches private models and datasets and those whose terms you accepted, and pushes what you export. It is kept encrypted and shown to nobody, not even to you.</p>
      <Loaded query={token} skeleton={<Skeleton className="h-9 max-w-md" />}>
        {({ present }) => <TokenForm present={present} />}
      </Loaded>
    </Card>
  );
}

function TokenForm({ present }: { present: boolean }) {
  const [removing, setRemoving] = useState(false);
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { token: "" },
    submit: async ({ token }) => {
      await keepHubToken(token);
      form.reset();
      toast(present ? "The Hub token was replaced." : "The Hub token is kept.");
    },
  });
  return (
    <>
      <ApiForm label="Hub token" failure={failure} onSubmit={onSubmit} className="max-w-xl">
        <PasswordField label={present ? "New token" : "Token"} secret="token" autoComplete="off" {...field("token")} />
        <div className="flex flex-wrap justify-end gap-2">
          {present && <Button onClick={() => setRemoving(true)}>Remove</Button>}
          <Button type="submit" variant="primary" pending={isSubmitting}>
            {present ? "Replace" : "Keep it"}
          </Button>
        </div>
      </ApiForm>
      <ConfirmDialog
        open={removing}
        onOpenChange={setRemoving}
        title="Remove the Hub token?"
        action="Remove token"
        onConfirm={async () => {
          await removeHubToken();
          toast("The Hub token was removed.");
        }}
      >
        Private and gated models and datasets can then no longer be fetched. The token itself stays valid on the Hub.
      </ConfirmDialog>
    </>
  );
}
