import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { signIn } from "@/api/auth";
import { ApiProblem } from "@/api/problem";
import { Button } from "@/components/button";
import { emailAddress, existingPassword } from "@/forms/account-rules";
import { ApiForm } from "@/forms/api-form";
import { PasswordField } from "@/forms/password-field";
import { TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { useSignInDone } from "@/shell/use-sign-in-done";
import { ResendVerification } from "./resend-verification";

const rules = z.object({ email: emailAddress, password: existingPassword });

export function SignInForm({ next }: { next?: string }) {
  const done = useSignInDone(next);
  const [unverified, setUnverified] = useState<string | null>(null);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { email: "", password: "" },
    submit: async (values) => {
      setUnverified(null);
      try {
        done(await signIn(values));
      } catch (error) {
        if (error instanceof ApiProblem && error.code === "email_not_verified") setUnverified(values.email);
        throw error;
      }
    },
  });

  return (
    <ApiForm label="Sign in" failure={failure} onSubmit={onSubmit}>
      {unverified && <ResendVerification email={unverified} />}
      <TextField label="Email" type="email" autoComplete="username" {...field("email")} />
      <PasswordField label="Password" autoComplete="current-password" {...field("password")} />
      <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
        Sign in
      </Button>
      <Link to="/auth/forgot" className="justify-self-center text-sm text-dim underline-offset-3 hover:text-text hover:underline">
        Forgot your password?
      </Link>
    </ApiForm>
  );
}
