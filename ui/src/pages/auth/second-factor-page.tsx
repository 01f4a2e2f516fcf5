/** The second step of a sign-in: a code of an authenticator app, a recovery code or a passkey. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { secondStepQuery } from "@/api/auth";
import { ApiProblem, sentenceOf } from "@/api/problem";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
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
  // Asking again would give the same answer: the way on is the link below.
  const hasExpired = step.error instanceof ApiProblem && step.error.status === 410;
  return (
    <AuthFrame
      title="Enter your second factor"
      footer={
        <Link to="/auth" search={{ next }} className="underline underline-offset-3">
          Back to sign in
        </Link>
      }
    >
      {hasExpired ? (
        <Notice tone="bad" role="alert">
          {sentenceOf(step.error)}
        </Notice>
      ) : (
        <Loaded query={step} skeleton={<SkeletonRows rows={3} />}>
          {({ second_factors: factors }) => <SecondFactorForm factors={factors} onDone={done} />}
        </Loaded>
      )}
    </AuthFrame>
  );
}
