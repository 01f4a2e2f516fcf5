import { Link, useNavigate } from "@tanstack/react-router";
import { resetPassword } from "@/api/auth";
import { Button } from "@/components/button";
import { toast } from "@/components/toasts";
import { PASSWORD_HELP, newPassword } from "@/forms/account-rules";
import { ApiForm } from "@/forms/api-form";
import { PasswordField } from "@/forms/password-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { useFragment } from "@/shell/use-fragment";
import { usePageTitle } from "@/shell/use-page-title";
import { AuthFrame } from "./auth-frame";
import { IncompleteLink } from "./incomplete-link";

const rules = z.object({ password: newPassword });

export function ResetPage() {
  usePageTitle("Choose a new password");
  const token = useFragment("token");
  return (
    <AuthFrame
      title="Choose a new password"
      footer={<Link to="/auth/forgot" className="underline underline-offset-3">Ask for a new link</Link>}
    >
      {token === null ? <IncompleteLink /> : <ResetForm token={token} />}
    </AuthFrame>
  );
}

function ResetForm({ token }: { token: string }) {
  const navigate = useNavigate();
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { password: "" },
    submit: async ({ password }) => {
      await resetPassword({ token, password });
      toast("Your password was changed. Sign in with the new one.");
      await navigate({ to: "/auth" });
    },
  });
  return (
    <ApiForm label="Choose a new password" failure={failure} onSubmit={onSubmit}>
      <PasswordField label="New password" autoComplete="new-password" help={PASSWORD_HELP} {...field("password")} />
      <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
        Change password
      </Button>
    </ApiForm>
  );
}
