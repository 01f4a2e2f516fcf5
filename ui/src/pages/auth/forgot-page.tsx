import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { askForPasswordReset } from "@/api/auth";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { emailAddress } from "@/forms/account-rules";
import { ApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { usePageTitle } from "@/shell/use-page-title";
import { AuthFrame } from "./auth-frame";
import { OutboxNote } from "./outbox-note";

const rules = z.object({ email: emailAddress });

export function ForgotPage() {
  usePageTitle("Forgotten password");
  const [sent, setSent] = useState<string | null>(null);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { email: "" },
    submit: async ({ email }) => setSent((await askForPasswordReset(email)).detail),
  });

  return (
    <AuthFrame title="Forgotten password" footer={<Link to="/auth" className="underline underline-offset-3">Back to sign in</Link>}>
      {sent ? (
        <Notice tone="good" role="status">
          <p>{sent}</p>
          <OutboxNote />
        </Notice>
      ) : (
        <ApiForm label="Forgotten password" failure={failure} onSubmit={onSubmit}>
          <p className="text-dim">Enter the address of your account, and we send a link to choose a new password.</p>
          <TextField label="Email" type="email" autoComplete="username" {...field("email")} />
          <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
            Send the link
          </Button>
        </ApiForm>
      )}
    </AuthFrame>
  );
}
