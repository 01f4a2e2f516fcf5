/** Accounts at sign-in providers with which a person can sign in here. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { linkedAccountsQuery, startLink, unlinkAccount } from "@/api/account";
import { authStateQuery } from "@/api/auth";
import { sentenceOf } from "@/api/problem";
import type { LinkedAccount, OAuthProvider } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/dialog";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { oauthErrorSentence } from "@/shell/oauth-errors";
import { providerName } from "@/shell/session";

const route = getRouteApi("/app/settings");

export function LinkedAccountsCard() {
  const providers = useQuery(authStateQuery).data?.oauth_providers ?? [];
  const linked = useQuery(linkedAccountsQuery);
  const [unlinking, setUnlinking] = useState<LinkedAccount | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const { error } = route.useSearch();
  useLinkedToast();

  async function link(provider: OAuthProvider) {
    setFailure(null);
    try {
      window.location.assign((await startLink(provider)).address);
    } catch (problem) {
      setFailure(sentenceOf(problem));
    }
  }

  // Most servers have no sign-in provider: nothing to show.
  if (providers.length === 0 && (linked.data?.items.length ?? 0) === 0) return null;
  const shown = failure ?? (error ? oauthErrorSentence(error) : null);
  return (
    <Card>
      <CardHeader title="Linked accounts" />
      {shown && (
        <Notice tone="bad" role="alert" className="mb-3">
          {shown}
        </Notice>
      )}
      <Loaded query={linked} skeleton={<SkeletonRows rows={2} />}>
        {({ items }) =>
          items.length === 0 ? (
            <p className="text-dim">Link an account to sign in with it instead of your password.</p>
          ) : (
            <ul className="grid gap-2">
              {items.map((account) => (
                <li key={account.id} className="flex flex-wrap items-center justify-between gap-x-3 gap-y-1 rounded-control border border-line-strong px-3 py-2">
                  <div className="min-w-0">
                    <div className="font-[560]">{providerName(account.provider)}</div>
                    <div className="text-sm break-all text-dim">
                      {account.email ?? "no confirmed email address"} · linked <TimeAgo at={account.created_at} />
                    </div>
                  </div>
                  <Button size="small" aria-label={`Unlink ${providerName(account.provider)}`} onClick={() => setUnlinking(account)}>
                    Unlink
                  </Button>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
      <div className="mt-4 flex flex-wrap justify-end gap-2">
        {providers.map((provider) => (
          <Button key={provider} onClick={() => void link(provider)}>
            Link {providerName(provider)}
          </Button>
        ))}
      </div>
      <ConfirmDialog
        open={unlinking !== null}
        onOpenChange={(open) => !open && setUnlinking(null)}
        title={`Unlink ${providerName(unlinking?.provider ?? "")}?`}
        action="Unlink account"
        onConfirm={async () => {
          if (unlinking === null) return;
          await unlinkAccount(unlinking.id);
          toast(`${providerName(unlinking.provider)} was unlinked.`);
        }}
      >
        You can no longer sign in here with that account. Your other ways to sign in stay.
      </ConfirmDialog>
    </Card>
  );
}

/** The provider sends the browser back to this page; a reload must not say it again. */
function useLinkedToast() {
  const { linked } = route.useSearch();
  const navigate = useNavigate({ from: "/settings" });
  useEffect(() => {
    if (linked === undefined) return;
    toast(`You can now sign in with ${providerName(linked)}.`);
    void navigate({ search: (kept) => ({ ...kept, linked: undefined }), replace: true });
  }, [linked, navigate]);
}
