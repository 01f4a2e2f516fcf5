import { changePassword } from "@/api/account";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { toast } from "@/components/toasts";
import { PASSWORD_HELP, existingPassword, newPassword } from "@/forms/account-rules";
import { ApiForm } from "@/forms/api-form";
import { PasswordField } from "@/forms/password-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { useCurrentUser } from "@/shell/current-user";

const rules = z.object({ currentPassword: existingPassword, newPassword });

export function PasswordCard() {
  const user = useCurrentUser();
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { currentPassword: "", newPassword: "" },
    submit: async (values) => {
      await changePassword(values);
      form.reset();
      toast("Your password was changed. All other devices were signed out.");
    },
  });
  return (
    <Card>
      <CardHeader title="Password" />
      <ApiForm label="Change password" failure={failure} onSubmit={onSubmit}>
        <input type="email" autoComplete="username" value={user.email} readOnly hidden />
        <PasswordField label="Current password" autoComplete="current-password" {...field("currentPassword")} />
        <PasswordField label="New password" autoComplete="new-password" help={PASSWORD_HELP} {...field("newPassword")} />
        <p className="text-sm text-dim">Changing it signs out every other device.</p>
        <Button type="submit" variant="primary" pending={isSubmitting} className="justify-self-end">
          Change password
        </Button>
      </ApiForm>
    </Card>
  );
}
