/** The layout around every page of a signed-in person. */
import { useQuery } from "@tanstack/react-query";
import { useLocation } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { authStateQuery } from "@/api/auth";
import { askToSignInAgain, useConfirmRequired, useOutdated, useSignInRequired } from "@/api/client";
import type { User } from "@/api/types";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { useUploads } from "@/uploads/upload-store";
import { Footer } from "./footer";
import { AccountCorner, NavigationList, PhoneMenu } from "./navigation";
import { Brand, PageOutlet, UnreachableNotice } from "./page";
import { CurrentUser } from "./session";

/** Lets a keyboard pass over the navigation. Focus is moved by hand: a fragment in the address would confuse the router. */
function SkipLink() {
  return (
    <a
      href="#content"
      onClick={(event) => {
        event.preventDefault();
        document.getElementById("content")?.focus();
      }}
      className="fixed top-2 left-2 z-[70] -translate-y-20 rounded-control bg-violet px-4 py-2 font-[560] text-white focus-visible:translate-y-0"
    >
      Skip to content
    </a>
  );
}

/** After a change of page the keyboard continues in the new page, not at the link that led there. */
function useFocusOnNavigation() {
  const { pathname } = useLocation();
  const content = useRef<HTMLElement>(null);
  const lastPath = useRef(pathname);

  useEffect(() => {
    if (lastPath.current === pathname) return;
    lastPath.current = pathname;
    content.current?.focus({ preventScroll: true });
  }, [pathname]);

  return content;
}

/** A page of an earlier version may misunderstand the server: its person is asked to load the new one. */
function ReloadNotice() {
  if (!useOutdated()) return null;
  return (
    <Notice role="status" className="mb-4 flex flex-wrap items-center justify-between gap-3">
      GPU Bloom was updated. Reload this page to use the new version.
      <Button size="small" onClick={() => window.location.reload()}>
        Reload
      </Button>
    </Notice>
  );
}

const SignInAgainDialog = lazy(() =>
  import("./sign-in-again-dialog").then((module) => ({ default: module.SignInAgainDialog })),
);

const ConfirmIdentityDialog = lazy(() =>
  import("./confirm-identity-dialog").then((module) => ({ default: module.ConfirmIdentityDialog })),
);

const UploadsStrip = lazy(() => import("@/uploads/uploads-strip").then((module) => ({ default: module.UploadsStrip })));

/** Everything around the pages of somebody who is signed in. */
export function AppLayout() {
  const user = useLastKnownUser();
  const signInRequired = useSignInRequired();
  const confirmRequired = useConfirmRequired();
  const content = useFocusOnNavigation();
  const uploading = useUploads().length > 0;
  if (user === null) return null;

  return (
    <CurrentUser value={user}>
      <SkipLink />
      <div className="lg:grid lg:min-h-dvh lg:grid-cols-[216px_minmax(0,1fr)] print:block">
        <aside className="sticky top-0 hidden h-dvh flex-col border-r border-line bg-rail px-3 py-4.5 lg:flex print:hidden">
          <Brand to="/dashboard" className="mb-4.5 px-2.5 py-0.5" />
          <NavigationList />
          <div className="mt-auto">
            <AccountCorner />
          </div>
        </aside>
        <PhoneMenu />
        <div className="flex min-w-0 flex-col max-lg:min-h-[calc(100dvh-57px)]">
          <UnreachableNotice />
          <main id="content" ref={content} tabIndex={-1} className="max-w-[1320px] grow px-4 py-5 outline-none sm:px-7">
            <ReloadNotice />
            {uploading && (
              <Suspense fallback={null}>
                <UploadsStrip />
              </Suspense>
            )}
            <PageOutlet />
          </main>
          <Footer className="mx-4 max-w-[1264px] sm:mx-7" />
        </div>
      </div>
      {signInRequired && (
        <Suspense fallback={null}>
          <SignInAgainDialog user={user} />
        </Suspense>
      )}
      {confirmRequired && !signInRequired && (
        <Suspense fallback={null}>
          <ConfirmIdentityDialog user={user} />
        </Suspense>
      )}
    </CurrentUser>
  );
}

/** Stays the same person when the session ends under an open page, so that the page keeps what is in it. */
function useLastKnownUser(): User | null {
  const { data: state } = useQuery(authStateQuery);
  const [known, setKnown] = useState<User | null>(state?.user ?? null);
  const present = state?.user ?? null;
  if (present !== null && present !== known) setKnown(present);

  const ended = state !== undefined && present === null && known !== null;
  useEffect(() => {
    if (ended) void askToSignInAgain();
  }, [ended]);
  return present ?? known;
}
