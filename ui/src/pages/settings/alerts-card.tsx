/** Where alerts about runs go: the channels of a person, or of a project. */
import { useQuery } from "@tanstack/react-query";
import { BellRing, Plus } from "lucide-react";
import { useId, useState } from "react";
import { type UseFormRegisterReturn, useWatch } from "react-hook-form";
import { type AlertChannel, type AlertRule, alertChannelsQuery, changeAlertChannel, createAlertChannel, deleteAlertChannel, testAlertChannel } from "@/api/alerts";
import { authStateQuery } from "@/api/auth";
import { ChannelIn } from "@/api/request-fields";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog, Dialog } from "@/components/dialog";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Badge, Notice } from "@/components/notice";
import { TimeAgo } from "@/components/time-ago";
import { toast, toastFailure, useAction } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { PasswordField, SelectField, TextField } from "@/forms/field";
import { textRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { SecretOnce } from "./tokens-tab";

const KINDS = [
  ["email", "Email to your account"],
  ["slack", "Slack, Mattermost or Discord"],
  ["webhook", "Webhook, signed"],
] as const;

const KIND_NAMES = { email: "Email", slack: "Chat", webhook: "Webhook" } as const;

export const AlertsTab = () => <AlertsCard />;

/** `projectId` null: for all runs of the person. */
export function AlertsCard({ projectId = null }: { projectId?: string | null }) {
  const channels = useQuery(alertChannelsQuery(projectId));
  const [creating, setCreating] = useState(false);
  const [edited, setEdited] = useState<AlertChannel | null>(null);
  const [doomed, setDoomed] = useState<AlertChannel | null>(null);
  const whose = projectId === null ? "all your runs" : "the runs of this project";
  const rules = channels.data?.rules ?? [];
  const newChannel = (
    <Button variant="primary" size={projectId === null ? undefined : "small"} onClick={() => setCreating(true)}>
      <Plus aria-hidden />
      New channel
    </Button>
  );
  return (
    <Card aria-label="Alerts">
      <CardHeader title="Alerts">{channels.data && channels.data.items.length > 0 && newChannel}</CardHeader>
      <Loaded query={channels} skeleton={<SkeletonRows rows={1} />}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState icon={BellRing} title="No alert channels yet." action={newChannel}>
              A channel tells you when one of {whose} fails, diverges or stalls.
            </EmptyState>
          ) : (
            <ul className="grid gap-1.5">
              {items.map((channel) => (
                <Channel key={channel.id} channel={channel} rules={rules} onEdit={setEdited} onDelete={setDoomed} />
              ))}
            </ul>
          )
        }
      </Loaded>
      <Dialog open={creating} onOpenChange={setCreating} title="New alert channel">
        <NewChannelForm projectId={projectId} rules={rules} onClose={() => setCreating(false)} />
      </Dialog>
      <Dialog open={edited !== null} onOpenChange={(open) => !open && setEdited(null)} title={`Rules of ${edited?.name ?? ""}`}>
        {edited && <RulesForm channel={edited} rules={rules} onClose={() => setEdited(null)} />}
      </Dialog>
      <ConfirmDialog
        open={doomed !== null}
        onOpenChange={(open) => !open && setDoomed(null)}
        title={`Delete the channel “${doomed?.name ?? ""}”?`}
        action="Delete channel"
        onConfirm={async () => {
          if (doomed) await deleteAlertChannel(doomed.id);
        }}
      >
        Alerts are no longer sent there. Messages that wait for it are dropped.
      </ConfirmDialog>
    </Card>
  );
}

type ChannelProps = { channel: AlertChannel; rules: readonly AlertRule[]; onEdit: (channel: AlertChannel) => void; onDelete: (channel: AlertChannel) => void };

function Channel({ channel, rules, onEdit, onDelete }: ChannelProps) {
  const titles = channel.rules.map((name) => rules.find((rule) => rule.name === name)?.title ?? name);

  const test = useAction(async () => {
    const { delivered, problem } = await testAlertChannel(channel.id);
    if (delivered) toast(`The test message to ${channel.name} was delivered.`);
    else toastFailure(`The test message to ${channel.name} was not delivered. ${problem ?? ""}`);
  });
  const change = useAction(() => changeAlertChannel(channel.id, { enabled: !channel.enabled }));

  return (
    <li className="grid gap-1.5 rounded-control border border-line px-3 py-2">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <span className="min-w-0 font-[540] wrap-anywhere">{channel.name}</span>
        <Badge>{KIND_NAMES[channel.kind]}</Badge>
        {!channel.enabled && <Badge tone="attention">off</Badge>}
        <span className="min-w-0 text-xs break-all text-dim">{channel.host}</span>
      </div>
      <p className="text-xs text-dim" title={titles.join("; ")}>
        {channel.rules.join(", ")}
        {channel.last_sent_at && (
          <>
            {" · last message "}
            <TimeAgo at={channel.last_sent_at} />
          </>
        )}
      </p>
      {channel.problem && <p className="text-xs text-danger-soft">Not delivered: {channel.problem}</p>}
      <div className="flex flex-wrap gap-1.5">
        <Button size="small" pending={test.pending} aria-label={`Test ${channel.name}`} onClick={test.run}>
          Test
        </Button>
        <Button size="small" aria-label={`Change the rules of ${channel.name}`} onClick={() => onEdit(channel)}>
          Rules
        </Button>
        <Button size="small" aria-label={`Turn ${channel.enabled ? "off" : "on"} ${channel.name}`} onClick={change.run}>
          Turn {channel.enabled ? "off" : "on"}
        </Button>
        <Button size="small" aria-label={`Delete ${channel.name}`} onClick={() => onDelete(channel)}>
          Delete
        </Button>
      </div>
    </li>
  );
}

const chosenRules = z.array(z.string()).min(1, "Choose at least one rule.");
const newChannelRules = z
  .object({
    kind: z.enum(ChannelIn.kind.enum),
    name: textRule(ChannelIn.name).min(1, "Enter a name for the channel."),
    address: z.string().trim(),
    rules: chosenRules,
  })
  .refine(({ kind, address }) => kind === "email" || /^https?:\/\/\S+$/.test(address), { path: ["address"], message: "Enter an address that starts with https://." });

type FormProps = { rules: readonly AlertRule[]; onClose: () => void };

function NewChannelForm({ projectId, rules, onClose }: FormProps & { projectId: string | null }) {
  const auth = useQuery(authStateQuery);
  const [secret, setSecret] = useState<string | null>(null);
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: newChannelRules,
    defaultValues: { kind: "email", name: "", address: "", rules: rules.filter((rule) => rule.default).map(({ name }) => name) },
    submit: async ({ kind, name, address, rules: chosen }) => {
      const made = await createAlertChannel({ kind, name, address: kind === "email" ? null : address, rules: chosen, project_id: projectId });
      if (made.signing_secret) setSecret(made.signing_secret);
      else {
        toast(`The channel ${name} was created.`);
        onClose();
      }
    },
  });
  const kind = useWatch({ control: form.control, name: "kind" });
  if (secret !== null) {
    return (
      <SecretOnce secret={secret} label="Copy the signing secret" onClose={onClose}>
        Copy the signing secret now. Your program needs it to check the X-Bloom-Signature of each message. It is not shown again.
      </SecretOnce>
    );
  }
  return (
    <ApiForm label="New alert channel" failure={failure} onSubmit={onSubmit}>
      <SelectField label="Kind" options={KINDS} {...field("kind")} />
      {kind === "email" && auth.data?.mail === "outbox" && (
        <Notice tone="attention">This server cannot send email: no mail server is set up (BLOOM_SMTP_URL). Alerts are only written to the server log and to its outbox. Choose another kind to be notified.</Notice>
      )}
      <TextField label="Name" placeholder="such as Team chat" autoComplete="off" {...field("name")} />
      {kind !== "email" && <PasswordField label="Address of the webhook" secret="address" autoComplete="off" placeholder="https://" {...field("address")} />}
      <RuleChoices rules={rules} {...field("rules")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Create channel
        </Button>
      </div>
    </ApiForm>
  );
}

function RulesForm({ channel, rules, onClose }: FormProps & { channel: AlertChannel }) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: z.object({ rules: chosenRules }),
    defaultValues: { rules: channel.rules },
    submit: async (values) => {
      await changeAlertChannel(channel.id, values);
      onClose();
    },
  });
  return (
    <ApiForm label={`Rules of ${channel.name}`} failure={failure} onSubmit={onSubmit}>
      <RuleChoices rules={rules} {...field("rules")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Save rules
        </Button>
      </div>
    </ApiForm>
  );
}

const isEvent = ({ name, default: usual }: AlertRule) => usual || name === "ended";

/** The usual rules open, the diagnoses folded: there are many. */
function RuleChoices({ rules, registration, error }: { rules: readonly AlertRule[]; registration: UseFormRegisterReturn; error?: string }) {
  const id = useId();
  const box = ({ name, title }: AlertRule) => (
    <label key={name} className="flex cursor-pointer items-start gap-2.5 py-0.5">
      <input type="checkbox" value={name} {...registration} className="mt-0.5 size-4 shrink-0 accent-violet" />
      <span className="min-w-0">{title}</span>
    </label>
  );
  return (
    <fieldset aria-describedby={error ? id : undefined} className="min-w-0">
      <legend className="mb-1.5 text-xs text-dim">Send a message when</legend>
      <div className="grid gap-0.5">{rules.filter(isEvent).map(box)}</div>
      <details className="mt-2">
        <summary className="cursor-pointer text-dim">Diagnoses</summary>
        <div className="mt-1.5 grid max-h-56 gap-0.5 overflow-y-auto rounded-control border border-line px-3 py-2">{rules.filter((rule) => !isEvent(rule)).map(box)}</div>
      </details>
      {error && (
        <p id={id} className="mt-1.5 text-xs text-danger-soft">
          {error}
        </p>
      )}
    </fieldset>
  );
}
