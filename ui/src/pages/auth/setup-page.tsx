import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { authStateQuery, setUp } from "@/api/auth";
import { Button } from "@/components/button";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { useFragment } from "@/shell/address";
import { usePageTitle } from "@/shell/page";
import { useSignInDone } from "@/shell/session";
import { AccountFields, accountRules } from "./account-fields";
import { AuthFrame, SetupPanel } from "./auth-frame";

export function SetupPage() {
  usePageTitle("Set up this server");
  const token = useFragment("token");
  const state = useQuery(authStateQuery);
  return (
    <AuthFrame title="Set up this server">
      <Loaded query={state} skeleton={<SkeletonRows rows={4} />}>
        {({ setup_required: setupRequired }) => {
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
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: accountRules,
    defaultValues: { name: "", email: "", password: "" },
    submit: async (values) => done(await setUp({ token, ...values })),
  });
  return (
    <ApiForm label="Create the first account" failure={failure} onSubmit={onSubmit}>
      <p className="text-dim">Create the first account. It becomes the administrator of this server.</p>
      <AccountFields form={form} field={field} />
      <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
        Create account
      </Button>
    </ApiForm>
  );
}
