import { renameMe } from "@/api/account";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { personName } from "@/forms/account-rules";
import { ApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { useCurrentUser } from "@/shell/current-user";
import { PasswordCard } from "./password-card";

const rules = z.object({ name: personName });

export function ProfileTab() {
  const user = useCurrentUser();
  const { form, field, failure, isSubmitting, isDirty, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { name: user.name },
    submit: async ({ name }) => {
      const saved = await renameMe(name);
      form.reset({ name: saved.name });
      toast("Your name was changed.");
    },
  });

  return (
    <div className="grid max-w-5xl items-start gap-3.5 lg:grid-cols-2">
      <Card>
        <CardHeader title="Profile" note={<Badge>{user.role === "admin" ? "Administrator" : "Member"}</Badge>} />
        <ApiForm label="Profile" failure={failure} onSubmit={onSubmit}>
          <TextField label="Name" autoComplete="name" {...field("name")} />
          <dl className="grid gap-2 text-sm">
            <div className="flex flex-wrap justify-between gap-x-4">
              <dt className="text-dim">Email</dt>
              <dd className="break-all">
                {user.email} <Badge tone={user.emailVerified ? "good" : "bad"}>{user.emailVerified ? "confirmed" : "not confirmed"}</Badge>
              </dd>
            </div>
            <div className="flex flex-wrap justify-between gap-x-4">
              <dt className="text-dim">Account created</dt>
              <dd>
                <TimeAgo at={user.createdAt} />
              </dd>
            </div>
          </dl>
          <Button type="submit" variant="primary" pending={isSubmitting} disabled={!isDirty} className="justify-self-end">
            Save name
          </Button>
        </ApiForm>
      </Card>
      <PasswordCard />
    </div>
  );
}
