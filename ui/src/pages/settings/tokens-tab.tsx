import { useQuery } from "@tanstack/react-query";
import { KeyRound, Plus } from "lucide-react";
import { useState } from "react";
import { deleteToken, tokensQuery } from "@/api/account";
import type { ApiToken } from "@/api/types";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/confirm-dialog";
import { type Column, DataTable } from "@/components/data-table";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { SkeletonRows } from "@/components/skeleton";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { HubTokenCard } from "./hub-token-card";
import { NewTokenDialog } from "./new-token-dialog";

export const TokensTab = () => (
  <div className="grid gap-3.5">
    <ApiTokensCard />
    <HubTokenCard />
  </div>
);

function ApiTokensCard() {
  const tokens = useQuery(tokensQuery);
  const [creating, setCreating] = useState(false);
  const [doomed, setDoomed] = useState<ApiToken | null>(null);

  const columns: Column<ApiToken>[] = [
    {
      header: "Name",
      lead: true,
      cell: (token) => (
        <>
          <div className="font-[540] break-words">{token.name}</div>
          <code className="font-mono text-xs text-dim">{token.prefix}…</code>
        </>
      ),
    },
    {
      header: "Rights",
      cell: (token) => (
        <span className="inline-flex flex-wrap gap-1.5">
          {token.scopes.map((scope) => (
            <Badge key={scope} tone={scope === "admin" ? "violet" : "neutral"}>
              {scope}
            </Badge>
          ))}
        </span>
      ),
    },
    { header: "Last used", cell: (token) => (token.lastUsedAt ? <TimeAgo at={token.lastUsedAt} /> : "never") },
    { header: "Ends", cell: (token) => (token.expiresAt ? <TimeAgo at={token.expiresAt} /> : "never") },
    {
      header: "Actions",
      quiet: true,
      end: true,
      cell: (token) => (
        <Button size="small" aria-label={`Delete the token ${token.name}`} onClick={() => setDoomed(token)}>
          Delete
        </Button>
      ),
    },
  ];

  const newToken = (
    <Button variant="primary" onClick={() => setCreating(true)}>
      <Plus aria-hidden />
      New token
    </Button>
  );

  return (
    <Card>
      <CardHeader title="API tokens">{tokens.data && tokens.data.items.length > 0 && newToken}</CardHeader>
      <Loaded query={tokens} skeleton={<SkeletonRows rows={3} />}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState icon={KeyRound} title="No API tokens yet." action={newToken}>
              A token lets a script or the command line talk to this server in your name.
            </EmptyState>
          ) : (
            <DataTable label="API tokens" columns={columns} rows={items} rowKey={(token) => token.id} />
          )
        }
      </Loaded>
      <NewTokenDialog open={creating} onOpenChange={setCreating} />
      <ConfirmDialog
        open={doomed !== null}
        onOpenChange={(open) => !open && setDoomed(null)}
        title={`Delete the token “${doomed?.name ?? ""}”?`}
        action="Delete token"
        onConfirm={async () => {
          if (doomed === null) return;
          await deleteToken(doomed.id);
          toast(`Token “${doomed.name}” deleted.`);
        }}
      >
        Every script that uses it stops working at once.
      </ConfirmDialog>
    </Card>
  );
}
