/** Pages for errors and for unknown addresses. */
import { useQueryErrorResetBoundary } from "@tanstack/react-query";
import { type ErrorComponentProps, Link, useRouter } from "@tanstack/react-router";
import { Compass, type LucideIcon, RefreshCw, TriangleAlert } from "lucide-react";
import { type ReactNode, useEffect, useRef } from "react";
import { sessionFetch, useFailure, useUnreachable } from "@/api/client";
import { sentenceOf } from "@/api/problem";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { EmptyState } from "@/components/loaded";
import { BarePage, usePageTitle } from "./page";

// The three engines word the failure of a dynamic import differently; Vite fetches its styles.
const MISSING_PART = /dynamically imported module|importing a module script|module script failed|unable to preload css/i;

/**
 * A part of the app that is loaded when it is first needed. The router answers a missing part with a reload, which brings
 * the parts of a new version; without a connection a reload would only replace the app by the browser's error page.
 */
export async function reachablePart<T>(part: Promise<T>): Promise<T> {
  try {
    return await part;
  } catch (error) {
    if (await isReachable()) throw error;
    throw new Error("A dynamically imported module is out of reach.", { cause: error });
  }
}

const isReachable = () =>
  sessionFetch(new Request(new URL("/api/health", window.location.origin), { cache: "no-store" })).then(({ ok }) => ok, () => false);

/** Stands in for one page of the app that failed; the rest goes on working around it. */
export function PageError({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const { reset: resetQueries } = useQueryErrorResetBoundary();
  const failure = useFailure(error);
  usePageTitle("Something went wrong");

  if (error instanceof Error && MISSING_PART.test(error.message)) return <MissingPart />;

  return (
    <EmptyState
      wholePage
      icon={TriangleAlert}
      title="This page could not be shown."
      action={
        <Button
          variant="primary"
          onClick={() => {
            resetQueries();
            reset();
            void router.invalidate();
          }}
        >
          Try again
        </Button>
      }
    >
      {failure !== null && <span role="alert">{sentenceOf(failure)}</span>}
    </EmptyState>
  );
}

/** Loads the page again by itself as soon as a server answers that did not answer when the part was asked for. */
function MissingPart() {
  const unreachable = useUnreachable();
  const wasUnreachable = useRef(false);
  useEffect(() => {
    if (wasUnreachable.current && !unreachable) window.location.reload();
    wasUnreachable.current = unreachable;
  }, [unreachable]);
  return (
    <EmptyState
      wholePage
      icon={RefreshCw}
      title="A part of this page could not be loaded."
      action={
        <Button variant="primary" onClick={() => window.location.reload()}>
          Reload the page
        </Button>
      }
    >
      {!unreachable && "The server may have been updated since you opened this page, or the connection was lost."}
    </EmptyState>
  );
}

/** For failures outside the app's own pages, or before it is known who is there. */
export function BarePageError(failure: ErrorComponentProps) {
  return (
    <BarePage>
      <PageError {...failure} />
    </BarePage>
  );
}

type ItemNotFoundProps = { icon: LucideIcon; title: string; /** To the list in which the item was. */ link: ReactNode; children: ReactNode };

/** In place of the page of a job, a dataset or a project that is not there. */
export function ItemNotFound({ icon, title, link, children }: ItemNotFoundProps) {
  return (
    <Card>
      <EmptyState
        wholePage
        icon={icon}
        title={title}
        action={
          <Button asChild variant="primary">
            {link}
          </Button>
        }
      >
        {children}
      </EmptyState>
    </Card>
  );
}

export function NotFound() {
  usePageTitle("Page not found");
  return (
    <BarePage>
      <EmptyState
        wholePage
        icon={Compass}
        title="There is no page at this address."
        action={
          <Button asChild variant="primary">
            <Link to="/dashboard">Open dashboard</Link>
          </Button>
        }
      >
        The page may have been moved or deleted, or the link is incomplete.
      </EmptyState>
    </BarePage>
  );
}
