import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { authStateQuery, needsSecondFactor, oauthStart, setSignedIn, signIn } from "@/api/auth";
import { answerSignInAgain } from "@/api/client";
import type { SecondStep, SignedIn, User } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { PasswordField } from "@/forms/field";
import { existingPassword } from "@/forms/rules";
import { z } from "@/forms/zod";
import { SecondFactorForm } from "./second-factor-form";
import { providerName } from "./session";

const rules = z.object({ password: existingPassword });

function finish(answer: SignedIn) {
  setSignedIn(answer);
  answerSignInAgain(true);
}

/** Signs the same person in again over the open page; waiting requests are then sent once more. */
export function SignInAgainDialog({ user }: { user: User }) {
  const queryClient = useQueryClient();
  const providers = queryClient.getQueryData(authStateQuery.queryKey)?.oauth_providers ?? [];
  const [step, setStep] = useState<SecondStep | null>(null);
  useDetectSignInInOtherTab(user.id);

  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { password: "" },
    submit: async ({ password }) => {
      const answer = await signIn({ email: user.email, password });
      if (needsSecondFactor(answer)) setStep(answer);
      else finish(answer);
    },
  });

  return (
    <Dialog
      open
      onOpenChange={(open) => {
        if (!open) answerSignInAgain(false);
      }}
      title="Your session has ended"
      description="Sign in again to continue. The text you typed on this page is not lost."
      className="max-w-sm"
    >
      {step ? (
        <SecondFactorForm factors={step.second_factors} onDone={finish} />
      ) : (
        <ApiForm label="Sign in again" failure={failure} onSubmit={onSubmit}>
          {/* Password managers expect the name next to the password. */}
          <input type="email" autoComplete="username" value={user.email} readOnly hidden />
          <p className="-mt-1">
            Account: <span className="font-[560] break-all">{user.email}</span>
          </p>
          <PasswordField label="Password" autoComplete="current-password" {...field("password")} />
          <div className="flex flex-wrap justify-end gap-2">
            <Button onClick={() => answerSignInAgain(false)}>Not now</Button>
            <Button type="submit" variant="primary" pending={isSubmitting}>
              Sign in
            </Button>
          </div>
          {providers.map((provider) => (
            <Button key={provider} asChild>
              <a href={oauthStart(provider, "/dashboard")} target="_blank" rel="noreferrer">
                Sign in with {providerName(provider)} in a new tab
              </a>
            </Button>
          ))}
        </ApiForm>
      )}
    </Dialog>
  );
}

/** Somebody who signs in from another tab has answered the question too. */
function useDetectSignInInOtherTab(userId: string) {
  const queryClient = useQueryClient();
  useEffect(() => {
    async function checkSession() {
      const state = await queryClient.fetchQuery({ ...authStateQuery, staleTime: 0 }).catch(() => null);
      if (!state?.user) return;
      if (state.user.id === userId) answerSignInAgain(true);
      // Nothing of the one person may be left on the screen of the other.
      else window.location.assign("/dashboard");
    }
    const onFocus = () => void checkSession();
    window.addEventListener("focus", onFocus);
    return () => window.removeEventListener("focus", onFocus);
  }, [queryClient, userId]);
}
