import { ApiProblem } from "@/api/problem";
import { connectProvider, type Provider } from "@/api/providers";
import { CredentialsIn } from "@/api/request-fields";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { PasswordField, TextField } from "@/forms/field";
import { textRule } from "@/forms/rules";
import { z } from "@/forms/zod";

const rulesFor = (provider: Provider) =>
  z.object(
    Object.fromEntries(
      provider.fields.map(({ name, title, required }) => {
        const text = textRule(CredentialsIn.values.items);
        return [name, required ? text.min(1, `${title} is required.`) : text];
      }),
    ),
  );

/** The server names a field by where it stands in the request. */
function asFields(error: unknown): never {
  if (!(error instanceof ApiProblem)) throw error;
  const fieldErrors = error.fieldErrors.map(({ field, message }) => ({ field: field.replace(/^values\./, ""), message }));
  throw new ApiProblem(error.message, { status: error.status, code: error.code, fieldErrors });
}

/** Takes what a service asks for, and tries it before it is kept. */
export function ConnectDialog({ provider, onClose }: { provider: Provider; onClose: () => void }) {
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={`Connect ${provider.title}`}
      description="The credentials are tested immediately and stored encrypted. They are never displayed again."
    >
      <ConnectForm provider={provider} onClose={onClose} />
    </Dialog>
  );
}

function ConnectForm({ provider, onClose }: { provider: Provider; onClose: () => void }) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm<Record<string, string>, Record<string, string>>({
    schema: rulesFor(provider),
    defaultValues: Object.fromEntries(provider.fields.map(({ name }) => [name, ""])),
    submit: async (values) => {
      const filled = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
      const { account, title } = await connectProvider(provider.name, filled).catch(asFields);
      toast(account ? `${title} is connected as ${account}.` : `${title} is connected.`);
      onClose();
    },
  });
  return (
    <ApiForm label={`Connect ${provider.title}`} failure={failure} onSubmit={onSubmit}>
      {provider.fields.map(({ name, title, secret, required, hint }) =>
        secret ? (
          <PasswordField key={name} label={title} secret={title} help={hint || undefined} autoComplete="off" {...field(name)} />
        ) : (
          <TextField key={name} label={title} optional={!required} help={hint || undefined} autoComplete="off" {...field(name)} />
        ),
      )}
      {provider.fields.length === 0 && <p className="text-dim">No key is needed. The existing configuration of this server is used.</p>}
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Connect
        </Button>
      </div>
    </ApiForm>
  );
}
