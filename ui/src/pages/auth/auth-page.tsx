/** Sign-in and sign-up, by password or OAuth. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate, useRouter } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import type { UseFormReturn } from "react-hook-form";
import { authStateQuery, oauthStart, resendVerification, signIn, signInWithPasskey, signUp } from "@/api/auth";
import { ApiProblem, sentenceOf } from "@/api/problem";
import type { AuthState, OAuthProvider } from "@/api/types";
import { Button } from "@/components/button";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { PasswordField, TextField } from "@/forms/field";
import { emailAddress, existingPassword } from "@/forms/rules";
import { z } from "@/forms/zod";
import { safeNextPath, useFragment } from "@/shell/address";
import { oauthErrorSentence } from "@/shell/oauth-errors";
import { usePageTitle } from "@/shell/page";
import { PasskeyButton } from "@/shell/second-factor-form";
import { providerName, useSignInDone } from "@/shell/session";
import { AccountFields, accountRules } from "./account-fields";
import { AuthFrame, OutboxNote, SetupPanel } from "./auth-frame";

function ResendVerification({ email }: { email: string }) {
  const resend = useMutation({ mutationFn: () => resendVerification(email) });
  if (resend.isSuccess) {
    return (
      <Notice tone="good" role="status">
        <p>{resend.data.detail}</p>
        <OutboxNote />
      </Notice>
    );
  }
  return (
    <div className="grid gap-2">
      {resend.isError && (
        <Notice tone="bad" role="alert">
          {sentenceOf(resend.error)}
        </Notice>
      )}
      <Button pending={resend.isPending} onClick={() => resend.mutate()}>
        Resend the confirmation link
      </Button>
    </div>
  );
}

type Typed = { name: string; email: string; password: string };

/** Remembers what a person types, so that choosing the other tab loses none of it. */
function useRemember<Values extends Partial<Typed>>(form: UseFormReturn<Values, unknown, Values>, typed: Typed) {
  useEffect(() => form.subscribe({ formState: { values: true }, callback: ({ values }) => void Object.assign(typed, values) }), [form, typed]);
}

const signInRules = z.object({ email: emailAddress, password: existingPassword });

function SignInForm({ next, typed }: { next?: string; typed: Typed }) {
  const done = useSignInDone(next);
  const [unverified, setUnverified] = useState<string | null>(null);
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: signInRules,
    defaultValues: { email: typed.email, password: typed.password },
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
  useRemember(form, typed);

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

function PasskeySignIn({ next }: { next?: string }) {
  const done = useSignInDone(next);
  return (
    <div className="mt-4">
      <PasskeyButton use={signInWithPasskey} onDone={done}>
        Sign in with a passkey
      </PasskeyButton>
    </div>
  );
}

type SignUpFormProps = { invitation: string | null; next?: string; typed: Typed };

function SignUpForm({ invitation, next, typed }: SignUpFormProps) {
  const done = useSignInDone(next);
  const [sent, setSent] = useState<{ email: string; detail: string } | null>(null);
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: accountRules,
    defaultValues: { ...typed },
    submit: async (values) => {
      const { detail, verification_required: verificationRequired } = await signUp(invitation ? { ...values, invitation } : values);
      if (verificationRequired) setSent({ email: values.email, detail });
      // An invitation has already proved the address.
      else done(await signIn({ email: values.email, password: values.password }));
    },
  });

  useRemember(form, typed);
  if (sent) {
    return (
      <div className="grid gap-4">
        <Notice tone="good" role="status">
          <p className="font-[560]">Confirm your email address</p>
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
      <AccountFields form={form} field={field} />
      <Button type="submit" variant="primary" size="large" pending={isSubmitting}>
        Create account
      </Button>
    </ApiForm>
  );
}

type OAuthButtonsProps = { providers: OAuthProvider[]; next: string };

function OAuthButtons({ providers, next }: OAuthButtonsProps) {
  if (providers.length === 0) return null;
  return (
    <div className="mt-5 grid gap-2">
      <div className="mb-1 flex items-center gap-3 text-xs text-faint before:h-px before:flex-1 before:bg-line after:h-px after:flex-1 after:bg-line">
        or
      </div>
      {providers.map((provider) => (
        <Button key={provider} asChild size="large">
          <a href={oauthStart(provider, next)}>Continue with {providerName(provider)}</a>
        </Button>
      ))}
    </div>
  );
}

const route = getRouteApi("/auth");

export function AuthPage() {
  const search = route.useSearch();
  const invitation = useFragment("invite");
  const state = useQuery(authStateQuery);
  const signingUp = search.tab === "sign-up" || (invitation !== null && search.tab === undefined);
  usePageTitle(signingUp ? "Sign up" : "Sign in");

  return (
    <AuthFrame title={state.data?.setup_required ? "Set up this server" : signingUp ? "Create your account" : "Sign in to GPU Bloom"}>
      {search.error && (
        <Notice tone="bad" role="alert" className="mb-4">
          {oauthErrorSentence(search.error)}
        </Notice>
      )}
      <Loaded query={state} skeleton={<SkeletonRows rows={4} />}>
        {(known) => <AuthTabs state={known} invitation={invitation} next={search.next} signUpFirst={signingUp} />}
      </Loaded>
    </AuthFrame>
  );
}

type AuthTabsProps = { state: AuthState; invitation: string | null; next?: string; signUpFirst: boolean };

function AuthTabs({ state, invitation, next, signUpFirst }: AuthTabsProps) {
  const navigate = useNavigate();
  const [tab, setTab] = useState(signUpFirst ? "sign-up" : "sign-in");
  const [typed] = useState<Typed>({ name: "", email: "", password: "" });
  if (state.user) return <GoOn to={safeNextPath(next)} />;
  if (state.setup_required) return <SetupPanel />;

  function choose(chosen: string) {
    setTab(chosen);
    void navigate({
      to: "/auth",
      search: (kept) => ({ ...kept, error: undefined, tab: chosen === "sign-up" ? ("sign-up" as const) : undefined }),
      replace: true,
    });
  }

  const closed = state.signup === "closed" && invitation === null;
  return (
    <Tabs value={tab} onValueChange={choose}>
      <TabList aria-label="Sign in or sign up" className="w-full [&>*]:flex-1">
        <Tab value="sign-in">Sign in</Tab>
        <Tab value="sign-up">Sign up</Tab>
      </TabList>
      <TabPanel value="sign-in" tabIndex={-1}>
        <SignInForm next={next} typed={typed} />
        {state.passkeys && <PasskeySignIn next={next} />}
        <OAuthButtons providers={state.oauth_providers} next={safeNextPath(next)} />
      </TabPanel>
      <TabPanel value="sign-up" tabIndex={-1}>
        {closed ? (
          <Notice>
            <p className="font-[560]">Sign-up is closed on this server.</p>
            <p className="mt-1 text-dim">Ask the administrator for an invitation, then open the link in the invitation.</p>
          </Notice>
        ) : (
          <>
            <SignUpForm invitation={invitation} next={next} typed={typed} />
            <OAuthButtons providers={state.oauth_providers} next={safeNextPath(next)} />
          </>
        )}
      </TabPanel>
    </Tabs>
  );
}

/** Whoever is signed in already has no business here. */
function GoOn({ to }: { to: string }) {
  const router = useRouter();
  useEffect(() => router.history.replace(to), [router, to]);
  return <SkeletonRows rows={4} />;
}
