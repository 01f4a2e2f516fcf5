import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ArrowRight } from "lucide-react";
import { authStateQuery } from "@/api/auth-state";
import { Button } from "@/components/button";
import { Skeleton } from "@/components/skeleton";
import { SetupPanel } from "@/pages/auth/setup-panel";

/** The way in, which depends on who looks: somebody signed in, somebody new, or the owner of a fresh server. */
export function EntryActions({ position }: { position: "header" | "hero" }) {
  const { data: state, isPending } = useQuery(authStateQuery);
  const size = position === "hero" ? "large" : "normal";
  if (isPending) return <Skeleton className={position === "hero" ? "h-10 w-44 rounded-control" : "h-8.5 w-20 rounded-control"} />;

  if (state?.user) {
    return (
      <Button asChild variant="primary" size={size}>
        <Link to="/dashboard">
          Open dashboard
          <ArrowRight aria-hidden />
        </Link>
      </Button>
    );
  }
  if (state?.setupRequired) {
    return position === "hero" ? (
      <div className="max-w-xl">
        <SetupPanel />
      </div>
    ) : null;
  }
  const signUp = position === "hero" && state?.signup === "open";
  return (
    <div className="flex flex-wrap gap-3">
      {signUp && (
        <Button asChild variant="primary" size={size}>
          <Link to="/auth" search={{ tab: "sign-up" }}>
            Create an account
            <ArrowRight aria-hidden />
          </Link>
        </Button>
      )}
      <Button asChild variant={position === "hero" && !signUp ? "primary" : "outline"} size={size}>
        <Link to="/auth">Sign in</Link>
      </Button>
    </div>
  );
}
