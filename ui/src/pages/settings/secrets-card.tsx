/** The named secrets of a person, or of a project: environment variables of their jobs. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { SecretIn } from "@/api/request-fields";
import { deleteSecret, type Secret, secretsQuery, storeSecret } from "@/api/secrets";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/dialog";
import { Loaded, SkeletonRows } from "@/components/loaded";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { PasswordField, TextField } from "@/forms/field";
import { textRule } from "@/forms/rules";
import { z } from "@/forms/zod";

const rules = z.object({
  name: z.string().trim().regex(/^[A-Z][A-Z0-9_]{0,63}$/, "Use capital letters, digits and _, such as HF_TOKEN."),
  value: textRule(SecretIn.value).min(1, "Paste the value."),
});

/** `projectId` null: for all jobs of the person. */
export function SecretsCard({ projectId = null }: { projectId?: string | null }) {
  const secrets = useQuery(secretsQuery(projectId));
  const [doomed, setDoomed] = useState<Secret | null>(null);
  const whose = projectId === null ? "All your jobs" : "The jobs of this project";
  return (
    <Card aria-label="Secrets">
      <CardHeader title="Secrets" />
      <p className="mb-3.5 max-w-2xl text-dim">{whose} get these as environment variables, here and on rented machines. Values are stored encrypted and never displayed again.</p>
      <Loaded query={secrets} skeleton={<SkeletonRows rows={1} />}>
        {({ items }) => (
          <>
            {items.length > 0 && (
              <ul className="mb-3.5 grid gap-1.5">
                {items.map((secret) => (
                  <li key={secret.name} className="flex flex-wrap items-center justify-between gap-x-4 gap-y-1 rounded-control border border-line px-3 py-1.5">
                    <code className="min-w-0 font-mono text-sm break-all">{secret.name}</code>
                    <span className="flex items-center gap-3 text-xs text-dim">
                      <span>
                        changed <TimeAgo at={secret.updated_at} />
                      </span>
                      <Button size="small" aria-label={`Delete the secret ${secret.name}`} onClick={() => setDoomed(secret)}>
                        Delete
                      </Button>
                    </span>
                  </li>
                ))}
              </ul>
            )}
            <SecretForm projectId={projectId} names={items.map(({ name }) => name)} />
          </>
        )}
      </Loaded>
      <ConfirmDialog
        open={doomed !== null}
        onOpenChange={(open) => !open && setDoomed(null)}
        title={`Delete ${doomed?.name}?`}
        action="Delete secret"
        onConfirm={async () => {
          if (doomed) await deleteSecret(projectId, doomed.name);
        }}
      >
        Jobs that need this secret and have not started yet will fail. Running jobs keep the value that they started with.
      </ConfirmDialog>
    </Card>
  );
}

function SecretForm({ projectId, names }: { projectId: string | null; names: readonly string[] }) {
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { name: "", value: "" },
    submit: async ({ name, value }) => {
      await storeSecret(projectId, name, value);
      form.reset();
      toast(names.includes(name) ? `${name} was replaced.` : `${name} was stored.`);
    },
  });
  return (
    <ApiForm label="New secret" failure={failure} onSubmit={onSubmit} className="max-w-xl">
      <TextField label="Name" placeholder="such as WANDB_API_KEY" autoComplete="off" {...field("name")} />
      <PasswordField label="Value" secret="value" autoComplete="off" {...field("value")} />
      <Button type="submit" variant="primary" pending={isSubmitting} className="justify-self-end">
        Store secret
      </Button>
    </ApiForm>
  );
}
