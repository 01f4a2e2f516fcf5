/** The second step of a sign-in: a code of an authenticator app, a recovery code or a passkey. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { secondStepQuery } from "@/api/auth";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { usePageTitle } from "@/shell/page";
import { SecondFactorForm } from "@/shell/second-factor-form";
import { useSignInDone } from "@/shell/session";
import { AuthFrame } from "./auth-frame";

const route = getRouteApi("/auth/second-factor");

export function SecondFactorPage() {
  usePageTitle("Second factor");
  const { next } = route.useSearch();
  const done = useSignInDone(next);
  const step = useQuery(secondStepQuery);
  return (
    <AuthFrame
      title="Enter your second factor"
      footer={
        <Link to="/auth" search={{ next }} className="underline underline-offset-3">
          Back to sign in
        </Link>
      }
    >
      <Loaded query={step} skeleton={<SkeletonRows rows={3} />}>
        {({ second_factors: factors }) => <SecondFactorForm factors={factors} onDone={done} />}
      </Loaded>
    </AuthFrame>
  );
}
