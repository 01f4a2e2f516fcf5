import { useMutation } from "@tanstack/react-query";
import { resendVerification } from "@/api/auth";
import { sentenceOf } from "@/api/problem";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { OutboxNote } from "./outbox-note";

export function ResendVerification({ email }: { email: string }) {
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
        Send the confirmation link again
      </Button>
    </div>
  );
}
