import { useQuery } from "@tanstack/react-query";
import { useLocation } from "@tanstack/react-router";
import { useEffect } from "react";
import { authStateQuery, oauthStart } from "@/api/auth";
import { answerConfirm } from "@/api/client";
import { confirmIdentity, confirmMethodsQuery, confirmWithPasskey } from "@/api/factors";
import type { User } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { PasswordField, TextField } from "@/forms/field";
import { codeRule, existingPassword } from "@/forms/rules";
import { z } from "@/forms/zod";
import { codeHelp, PasskeyButton } from "./second-factor-form";
import { providerName } from "./session";

/** Asks for what a sign-in asks for, over the open page; requests that wait for it are then sent once more. */
export function ConfirmIdentityDialog({ user }: { user: User }) {
  const methods = useQuery(confirmMethodsQuery);
  return (
    <Dialog
      open
      onOpenChange={(open) => {
        if (!open) answerConfirm(false);
      }}
      title="Confirm it is you"
      description="You signed in more than 10 minutes ago, and this change affects who can use your account."
      className="max-w-sm"
    >
      <Loaded query={methods} skeleton={<SkeletonRows rows={3} />}>
        {({ password, code, passkey }) => (
          <div className="grid gap-4">
            {passkey && <PasskeyButton use={confirmWithPasskey} onDone={() => answerConfirm(true)} />}
            {password || code ? <ConfirmForm user={user} password={password} code={code} /> : !passkey && <SignInWithProvider />}
          </div>
        )}
      </Loaded>
    </Dialog>
  );
}

type ConfirmFormProps = { user: User; password: boolean; code: boolean };

function ConfirmForm({ user, password, code }: ConfirmFormProps) {
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: z.object({ password: password ? existingPassword : z.string(), code: code ? codeRule : z.string() }),
    defaultValues: { password: "", code: "" },
    submit: async (values) => {
      await confirmIdentity({ ...(password && { password: values.password }), ...(code && { code: values.code }) });
      answerConfirm(true);
    },
  });
  // The dialog opened before it was known what to ask for, with the focus on the way out of it.
  useEffect(() => form.setFocus(password ? "password" : "code"), [form, password]);
  return (
    <ApiForm label="Confirm it is you" failure={failure} onSubmit={onSubmit}>
      {/* Password managers expect the name next to the password. */}
      <input type="email" autoComplete="username" value={user.email} readOnly hidden />
      {password && <PasswordField label="Password" autoComplete="current-password" {...field("password")} />}
      {code && <TextField label="Code" autoComplete="one-time-code" autoCapitalize="none" spellCheck={false} help={codeHelp(true, true)} {...field("code")} />}
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={() => answerConfirm(false)}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Confirm
        </Button>
      </div>
    </ApiForm>
  );
}

/** Without a password and a second factor, only the sign-in provider knows who it is. */
function SignInWithProvider() {
  const { data: state } = useQuery(authStateQuery);
  const here = useLocation().href;
  return (
    <div className="grid gap-2">
      <p>Sign in again, then repeat the change.</p>
      {state?.oauth_providers.map((provider) => (
        <Button key={provider} asChild>
          <a href={oauthStart(provider, here)}>Sign in with {providerName(provider)}</a>
        </Button>
      ))}
    </div>
  );
}
