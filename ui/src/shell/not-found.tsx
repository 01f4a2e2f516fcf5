import { Link } from "@tanstack/react-router";
import { Compass } from "lucide-react";
import { Button } from "@/components/button";
import { EmptyState } from "@/components/empty-state";
import { Brand } from "./brand";
import { usePageTitle } from "./use-page-title";

export function NotFound() {
  usePageTitle("Page not found");
  return (
    <div className="mx-auto flex min-h-dvh max-w-5xl flex-col px-5 py-5">
      <header>
        <Brand to="/" />
      </header>
      <main className="grid flex-1 place-items-center">
        <div>
          <h1 className="sr-only">Page not found</h1>
          <EmptyState
            icon={Compass}
            title="There is no page at this address."
            action={
              <Button asChild look="primary">
                <Link to="/dashboard">Open dashboard</Link>
              </Button>
            }
          >
            It may have been moved or deleted, or the link was cut short.
          </EmptyState>
        </div>
      </main>
    </div>
  );
}
