import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate, useRouter } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { authStateQuery } from "@/api/auth-state";
import type { AuthState } from "@/api/types";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { SkeletonRows } from "@/components/skeleton";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { safeNextPath } from "@/shell/next-path";
import { useFragment } from "@/shell/use-fragment";
import { usePageTitle } from "@/shell/use-page-title";
import { AuthFrame } from "./auth-frame";
import { OAuthButtons } from "./oauth-buttons";
import { oauthErrorSentence } from "./oauth-errors";
import { SetupPanel } from "./setup-panel";
import { SignInForm } from "./sign-in-form";
import { SignUpForm } from "./sign-up-form";

const route = getRouteApi("/auth");

export function AuthPage() {
  const search = route.useSearch();
  const invitation = useFragment("invite");
  const state = useQuery(authStateQuery);
  const signingUp = search.tab === "sign-up" || (invitation !== null && search.tab === undefined);
  usePageTitle(signingUp ? "Sign up" : "Sign in");

  return (
    <AuthFrame title={state.data?.setupRequired ? "Welcome" : signingUp ? "Create your account" : "Welcome back"}>
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
  if (state.user) return <GoOn to={safeNextPath(next)} />;
  if (state.setupRequired) return <SetupPanel />;

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
        <SignInForm next={next} />
        <OAuthButtons providers={state.oauthProviders} next={safeNextPath(next)} />
      </TabPanel>
      <TabPanel value="sign-up" tabIndex={-1}>
        {closed ? (
          <Notice>
            <p className="font-[560]">This server does not take new accounts.</p>
            <p className="mt-1 text-dim">Ask its administrator for an invitation, then open the link in it.</p>
          </Notice>
        ) : (
          <>
            <SignUpForm invitation={invitation} next={next} />
            <OAuthButtons providers={state.oauthProviders} next={safeNextPath(next)} />
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
