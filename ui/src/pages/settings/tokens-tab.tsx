/** API tokens, the Hugging Face token, and secrets for jobs. */
import { useQuery } from "@tanstack/react-query";
import { KeyRound, Plus } from "lucide-react";
import { type ReactNode, useId, useState } from "react";
import type { UseFormRegisterReturn } from "react-hook-form";
import { createToken, deleteToken, tokensQuery } from "@/api/account";
import { hubTokenQuery, keepHubToken, removeHubToken } from "@/api/models";
import { NewApiToken, NewHubToken } from "@/api/request-fields";
import type { ApiToken, Scope } from "@/api/types";
import { Button, CopyButton } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { EmptyState, Loaded, Skeleton, SkeletonRows } from "@/components/loaded";
import { Badge, Notice } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { PasswordField, SelectField, TextField } from "@/forms/field";
import { numberRule, textRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { useCurrentUser } from "@/shell/session";
import { SecretsCard } from "./secrets-card";

export const TokensTab = () => (
  <div className="grid gap-3.5">
    <ApiTokensCard />
    <HubTokenCard />
    <SecretsCard />
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
          <div className="font-[540] wrap-anywhere">{token.name}</div>
          <code className="font-mono text-xs text-dim">{token.prefix}…</code>
        </>
      ),
    },
    {
      header: "Scopes",
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
    { header: "Last used", cell: (token) => (token.last_used_at ? <TimeAgo at={token.last_used_at} /> : "never") },
    { header: "Expires", cell: (token) => (token.expires_at ? <TimeAgo at={token.expires_at} /> : "never") },
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
              With an API token, a script or the command line can use this server under your account.
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
        Scripts that use this token lose access immediately.
      </ConfirmDialog>
    </Card>
  );
}

const LIFETIMES = [
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["365", "1 year"],
] as const;

const newTokenRules = z.object({
  name: textRule(NewApiToken.name).min(1, "Enter a name for the token."),
  scopes: z.array(z.enum(NewApiToken.scopes.items.enum)).min(1, "Choose at least one scope."),
  expires_in_days: numberRule(NewApiToken.expires_in_days).pipe(z.number()),
});

type NewTokenDialogProps = { open: boolean; onOpenChange: (open: boolean) => void };

function NewTokenDialog({ open, onOpenChange }: NewTokenDialogProps) {
  return (
    <Dialog open={open} onOpenChange={onOpenChange} title="New API token">
      <NewToken onClose={() => onOpenChange(false)} />
    </Dialog>
  );
}

function NewToken({ onClose }: { onClose: () => void }) {
  const user = useCurrentUser();
  const [secret, setSecret] = useState<string | null>(null);
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: newTokenRules,
    defaultValues: { name: "", scopes: ["read"], expires_in_days: String(NewApiToken.expires_in_days.default) },
    submit: async (values) => setSecret((await createToken(values)).token),
  });

  if (secret !== null) {
    return (
      <SecretOnce secret={secret} label="Copy the token" onClose={onClose}>
        Copy the token now and store it in a safe place. The token is not shown again.
      </SecretOnce>
    );
  }
  return (
    <ApiForm label="New API token" failure={failure} onSubmit={onSubmit}>
      <TextField label="Name" placeholder="Nightly training script" autoComplete="off" {...field("name")} />
      <ScopeChoices {...field("scopes")} admin={user.role === "admin"} />
      <SelectField label="Valid for" options={LIFETIMES} {...field("expires_in_days")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Create token
        </Button>
      </div>
    </ApiForm>
  );
}

const CHOICES: { scope: Scope; text: string; adminOnly?: boolean }[] = [
  { scope: "read", text: "View projects, jobs and other data" },
  { scope: "write", text: "Create, change and delete projects, jobs and other data" },
  { scope: "admin", text: "All administrator actions", adminOnly: true },
];

type ScopeChoicesProps = { registration: UseFormRegisterReturn; error?: string; admin: boolean };

function ScopeChoices({ registration, error, admin }: ScopeChoicesProps) {
  const errorId = useId();
  return (
    <fieldset aria-describedby={error ? errorId : undefined}>
      <legend className="mb-1.5 text-xs text-dim">Scopes</legend>
      <div className="grid gap-1.5">
        {CHOICES.filter((choice) => admin || !choice.adminOnly).map(({ scope, text }) => (
          <label
            key={scope}
            className="flex cursor-pointer items-center gap-3 rounded-control border border-line-strong px-3 py-2 transition-colors duration-150 hover:bg-white/4 has-checked:border-violet has-checked:bg-violet/12"
          >
            <input type="checkbox" value={scope} {...registration} className="size-4 shrink-0 accent-violet" />
            <span>
              <span className="font-[560]">{scope}</span> <span className="text-dim">{text}</span>
            </span>
          </label>
        ))}
      </div>
      {error && (
        <p id={errorId} className="mt-1.5 text-xs text-danger-soft">
          {error}
        </p>
      )}
    </fieldset>
  );
}

type SecretOnceProps = { secret: string; label: string; children: ReactNode; onClose: () => void };

/** Something the server will never show again. */
export function SecretOnce({ secret, label, children, onClose }: SecretOnceProps) {
  return (
    <div className="grid gap-4">
      <Notice tone="attention" role="status">
        {children}
      </Notice>
      <div className="flex items-center gap-3 rounded-control border border-line-strong bg-rail py-2 pr-2 pl-3">
        <code className="min-w-0 flex-1 font-mono text-xs break-all select-all">{secret}</code>
        <CopyButton text={secret} label={label} />
      </div>
      <Button variant="primary" onClick={onClose} className="justify-self-end">
        Done
      </Button>
    </div>
  );
}

const hubTokenRules = z.object({ token: textRule(NewHubToken.token).min(1, "Paste the token.").regex(/^\S*$/, "A token has no spaces.") });

/** The token that opens private and gated models and datasets on the Hub. It is never shown again. */
function HubTokenCard() {
  const token = useQuery(hubTokenQuery);
  return (
    <Card>
      <CardHeader title="Hugging Face token" note={token.data && <Badge tone={token.data.present ? "good" : "neutral"}>{token.data.present ? "saved" : "not set"}</Badge>} />
      <p className="mb-3.5 max-w-2xl text-dim">The token is used to download private and gated models and datasets and to upload exported models. It is stored encrypted and never displayed again.</p>
      <Loaded query={token} skeleton={<Skeleton className="h-9 max-w-md" />}>
        {({ present }) => <TokenForm present={present} />}
      </Loaded>
    </Card>
  );
}

function TokenForm({ present }: { present: boolean }) {
  const [removing, setRemoving] = useState(false);
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: hubTokenRules,
    defaultValues: { token: "" },
    submit: async ({ token }) => {
      await keepHubToken(token);
      form.reset();
      toast(present ? "The Hugging Face token was replaced." : "The Hugging Face token was saved.");
    },
  });
  return (
    <>
      <ApiForm label="Hugging Face token" failure={failure} onSubmit={onSubmit} className="max-w-xl">
        <PasswordField label={present ? "New token" : "Token"} secret="token" autoComplete="off" {...field("token")} />
        <div className="flex flex-wrap justify-end gap-2">
          {present && <Button onClick={() => setRemoving(true)}>Remove</Button>}
          <Button type="submit" variant="primary" pending={isSubmitting}>
            {present ? "Replace token" : "Save token"}
          </Button>
        </div>
      </ApiForm>
      <ConfirmDialog
        open={removing}
        onOpenChange={setRemoving}
        title="Remove the Hugging Face token?"
        action="Remove token"
        onConfirm={async () => {
          await removeHubToken();
          toast("The Hugging Face token was removed.");
        }}
      >
        This server can then no longer download private and gated models and datasets. The token stays valid at Hugging Face.
      </ConfirmDialog>
    </>
  );
}
