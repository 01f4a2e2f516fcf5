/** Asks for a second factor, on the sign-in page and in dialogs. */
import { useMutation } from "@tanstack/react-query";
import { KeyRound } from "lucide-react";
import type { ReactNode } from "react";
import { finishSignIn, signInWithPasskey } from "@/api/auth";
import { sentenceOf } from "@/api/problem";
import type { SecondStep, SignedIn } from "@/api/types";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { codeRule } from "@/forms/rules";
import { z } from "@/forms/zod";

const rules = z.object({ code: codeRule });

type SecondFactorFormProps = { factors: SecondStep["second_factors"]; onDone: (answer: SignedIn) => void };

export function SecondFactorForm({ factors, onDone }: SecondFactorFormProps) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { code: "" },
    submit: async ({ code }) => onDone(await finishSignIn(code)),
  });
  const hasApp = factors.includes("totp");
  const hasPaper = factors.includes("recovery_code");
  return (
    <div className="grid gap-4">
      {factors.includes("passkey") && <PasskeyButton use={signInWithPasskey} onDone={onDone} />}
      {(hasApp || hasPaper) && (
        <ApiForm label="Second factor" failure={failure} onSubmit={onSubmit}>
          <TextField
            label={hasApp ? "Code" : "Recovery code"}
            autoComplete="one-time-code"
            autoCapitalize="none"
            spellCheck={false}
            help={codeHelp(hasApp, hasPaper)}
            {...field("code")}
          />
          <Button type="submit" variant={hasApp ? "primary" : "outline"} size="large" pending={isSubmitting}>
            Continue
          </Button>
        </ApiForm>
      )}
    </div>
  );
}

export function codeHelp(hasApp: boolean, hasPaper: boolean): string {
  if (!hasApp) return "A recovery code replaces your passkey once.";
  return hasPaper ? "The 6 digits in your authenticator app, or a recovery code." : "The 6 digits in your authenticator app.";
}

type PasskeyButtonProps<T> = { use: () => Promise<T>; onDone: (answer: T) => void; children?: ReactNode };

export function PasskeyButton<T>({ use, onDone, children = "Use a passkey" }: PasskeyButtonProps<T>) {
  const sign = useMutation({ mutationFn: use, onSuccess: onDone });
  return (
    <div className="grid gap-2">
      {sign.isError && (
        <Notice tone="bad" role="alert">
          {sentenceOf(sign.error)}
        </Notice>
      )}
      <Button size="large" pending={sign.isPending} onClick={() => sign.mutate()}>
        <KeyRound aria-hidden />
        {children}
      </Button>
    </div>
  );
}
