import { Link } from "@tanstack/react-router";
import { Compass } from "lucide-react";
import { Button } from "@/components/button";
import { EmptyState } from "@/components/empty-state";
import { BarePage } from "./bare-page";
import { usePageTitle } from "./use-page-title";

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
        It may have been moved or deleted, or the link was cut short.
      </EmptyState>
    </BarePage>
  );
}
