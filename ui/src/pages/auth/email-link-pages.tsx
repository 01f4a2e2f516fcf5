/** Pages around links in emails: ask for a password reset, set a new password, verify an address. */
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { useWatch } from "react-hook-form";
import { askForPasswordReset, resetPassword, verifyEmail } from "@/api/auth";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { CheckField, PasswordField, TextField } from "@/forms/field";
import { NewPasswordField } from "@/forms/new-password-field";
import { emailAddress, existingPassword, newPassword } from "@/forms/rules";
import { z } from "@/forms/zod";
import { useFragment } from "@/shell/address";
import { usePageTitle } from "@/shell/page";
import { useSignInDone } from "@/shell/session";
import { AuthFrame, IncompleteLink, OutboxNote } from "./auth-frame";

const forgotRules = z.object({ email: emailAddress });

export function ForgotPage() {
  usePageTitle("Reset your password");
  const [sent, setSent] = useState<string | null>(null);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: forgotRules,
    defaultValues: { email: "" },
    submit: async ({ email }) => setSent((await askForPasswordReset(email)).detail),
  });

  return (
    <AuthFrame title="Reset your password" footer={<Link to="/auth" className="underline underline-offset-3">Back to sign in</Link>}>
      {sent ? (
        <Notice tone="good" role="status">
          <p>{sent}</p>
          <OutboxNote />
        </Notice>
      ) : (
        <ApiForm label="Reset your password" failure={failure} onSubmit={onSubmit}>
          <p className="text-dim">Enter the email address of your account. We send you a link to set a new password.</p>
          <TextField label="Email" type="email" autoComplete="username" {...field("email")} />
          <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
            Send reset link
          </Button>
        </ApiForm>
      )}
    </AuthFrame>
  );
}

const resetRules = z.object({ password: newPassword, keep_tokens: z.boolean() });

export function ResetPage() {
  usePageTitle("Set a new password");
  const token = useFragment("token");
  return (
    <AuthFrame
      title="Set a new password"
      footer={<Link to="/auth/forgot" className="underline underline-offset-3">Request a new link</Link>}
    >
      {token === null ? <IncompleteLink /> : <ResetForm token={token} />}
    </AuthFrame>
  );
}

function ResetForm({ token }: { token: string }) {
  const navigate = useNavigate();
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: resetRules,
    defaultValues: { password: "", keep_tokens: false },
    submit: async (values) => {
      await resetPassword({ token, ...values });
      toast("Your password was changed. Sign in with the new password.");
      await navigate({ to: "/auth" });
    },
  });
  return (
    <ApiForm label="Set a new password" failure={failure} onSubmit={onSubmit}>
      <NewPasswordField label="New password" typed={useWatch({ control: form.control, name: "password" })} person={{}} {...field("password")} />
      <p className="text-sm text-dim">The new password signs out all your devices and revokes your API tokens.</p>
      <CheckField label="Keep API tokens" {...field("keep_tokens")} />
      <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
        Change password
      </Button>
    </ApiForm>
  );
}

const verifyRules = z.object({ password: existingPassword });

export function VerifyPage() {
  usePageTitle("Confirm your email address");
  const token = useFragment("token");
  return (
    <AuthFrame title="Confirm your email address" footer={<Link to="/auth" className="underline underline-offset-3">Back to sign in</Link>}>
      {token === null ? <IncompleteLink /> : <VerifyForm token={token} />}
    </AuthFrame>
  );
}

/** Asks for the password: the owner of a mailbox must not confirm the sign-up of a stranger. */
function VerifyForm({ token }: { token: string }) {
  const done = useSignInDone();
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: verifyRules,
    defaultValues: { password: "" },
    submit: async ({ password }) => done(await verifyEmail({ token, password })),
  });
  return (
    <ApiForm label="Confirm your email address" failure={failure} onSubmit={onSubmit}>
      <p className="text-dim">Enter the password that you chose when you signed up. If you did not sign up, close this page.</p>
      <PasswordField label="Password" autoComplete="current-password" {...field("password")} />
      <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
        Confirm and sign in
      </Button>
      <Link to="/auth/forgot" className="justify-self-center text-sm text-dim underline-offset-3 hover:text-text hover:underline">
        Forgot your password?
      </Link>
    </ApiForm>
  );
}
