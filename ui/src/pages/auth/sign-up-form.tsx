import { useState } from "react";
import { signIn, signUp } from "@/api/auth";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { PASSWORD_HELP, emailAddress, newPassword, personName } from "@/forms/account-rules";
import { ApiForm } from "@/forms/api-form";
import { PasswordField } from "@/forms/password-field";
import { TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { useSignInDone } from "@/shell/use-sign-in-done";
import { OutboxNote } from "./outbox-note";
import { ResendVerification } from "./resend-verification";

const rules = z.object({ name: personName, email: emailAddress, password: newPassword });

type SignUpFormProps = { invitation: string | null; next?: string };

export function SignUpForm({ invitation, next }: SignUpFormProps) {
  const done = useSignInDone(next);
  const [sent, setSent] = useState<{ email: string; detail: string } | null>(null);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { name: "", email: "", password: "" },
    submit: async (values) => {
      const { detail, verificationRequired } = await signUp(invitation ? { ...values, invitation } : values);
      if (verificationRequired) setSent({ email: values.email, detail });
      // An invitation has already proved the address.
      else done(await signIn({ email: values.email, password: values.password }));
    },
  });

  if (sent) {
    return (
      <div className="grid gap-4">
        <Notice tone="good" role="status">
          <p className="font-[560]">One more step</p>
          <p className="mt-1">{sent.detail}</p>
          <OutboxNote />
        </Notice>
        <ResendVerification email={sent.email} />
      </div>
    );
  }

  return (
    <ApiForm label="Sign up" failure={failure} onSubmit={onSubmit}>
      {invitation && <Notice>You were invited. Use the email address that the invitation was sent to.</Notice>}
      <TextField label="Name" autoComplete="name" {...field("name")} />
      <TextField label="Email" type="email" autoComplete="username" {...field("email")} />
      <PasswordField label="Password" autoComplete="new-password" help={PASSWORD_HELP} {...field("password")} />
      <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
        Create account
      </Button>
    </ApiForm>
  );
}
