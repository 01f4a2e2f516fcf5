import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { verifyEmail } from "@/api/auth";
import { sentenceOf } from "@/api/problem";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { useFragment } from "@/shell/use-fragment";
import { usePageTitle } from "@/shell/use-page-title";
import { useSignInDone } from "@/shell/use-sign-in-done";
import { AuthFrame } from "./auth-frame";
import { IncompleteLink } from "./incomplete-link";

export function VerifyPage() {
  usePageTitle("Confirm your email address");
  const token = useFragment("token");
  const done = useSignInDone();
  const verify = useMutation({ mutationFn: verifyEmail, onSuccess: done });

  return (
    <AuthFrame title="Confirm your email address" footer={<Link to="/auth" className="underline underline-offset-3">Back to sign in</Link>}>
      {token === null ? (
        <IncompleteLink />
      ) : (
        // A click, not the visit, spends the link: mail filters visit links too.
        <div className="grid gap-4">
          {verify.isError && (
            <Notice tone="bad" role="alert">
              {sentenceOf(verify.error)}
            </Notice>
          )}
          <p className="text-dim">One click confirms that this address is yours, and signs you in.</p>
          <Button variant="primary" size="large" pending={verify.isPending} onClick={() => verify.mutate(token)}>
            Confirm and sign in
          </Button>
        </div>
      )}
    </AuthFrame>
  );
}
