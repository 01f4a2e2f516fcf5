import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { setUp } from "@/api/auth";
import { authStateQuery } from "@/api/auth-state";
import { Button } from "@/components/button";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { SkeletonRows } from "@/components/skeleton";
import { PASSWORD_HELP, emailAddress, newPassword, personName } from "@/forms/account-rules";
import { ApiForm } from "@/forms/api-form";
import { PasswordField } from "@/forms/password-field";
import { TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { useFragment } from "@/shell/use-fragment";
import { usePageTitle } from "@/shell/use-page-title";
import { useSignInDone } from "@/shell/use-sign-in-done";
import { AuthFrame } from "./auth-frame";
import { SetupPanel } from "./setup-panel";

const rules = z.object({ name: personName, email: emailAddress, password: newPassword });

export function SetupPage() {
  usePageTitle("Set up this server");
  const token = useFragment("token");
  const state = useQuery(authStateQuery);
  return (
    <AuthFrame title="Set up this server">
      <Loaded query={state} skeleton={<SkeletonRows rows={4} />}>
        {({ setupRequired }) => {
          if (!setupRequired) {
            return (
              <Notice>
                This server is already set up. <Link to="/auth">Sign in</Link> with your account.
              </Notice>
            );
          }
          return token === null ? <SetupPanel /> : <SetupForm token={token} />;
        }}
      </Loaded>
    </AuthFrame>
  );
}

function SetupForm({ token }: { token: string }) {
  const done = useSignInDone();
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { name: "", email: "", password: "" },
    submit: async (values) => done(await setUp({ token, ...values })),
  });
  return (
    <ApiForm label="Create the first account" failure={failure} onSubmit={onSubmit}>
      <p className="text-dim">You create the first account. It is the administrator of this server.</p>
      <TextField label="Name" autoComplete="name" {...field("name")} />
      <TextField label="Email" type="email" autoComplete="username" {...field("email")} />
      <PasswordField label="Password" autoComplete="new-password" help={PASSWORD_HELP} {...field("password")} />
      <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
        Create account
      </Button>
    </ApiForm>
  );
}
