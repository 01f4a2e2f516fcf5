/** The settings page, with the profile, the password and the second factors. */
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import type { ComponentType } from "react";
import { useWatch } from "react-hook-form";
import { changePassword, renameMe } from "@/api/account";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { Badge } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { CheckField, PasswordField, TextField } from "@/forms/field";
import { NewPasswordField } from "@/forms/new-password-field";
import { existingPassword, newPassword, personName } from "@/forms/rules";
import { z } from "@/forms/zod";
import type { SettingsTab } from "@/shell/address";
import { PageHeader, usePageTitle } from "@/shell/page";
import { useCurrentUser } from "@/shell/session";
import { AlertsTab } from "./alerts-card";
import { AuditTab } from "./audit-tab";
import { LinkedAccountsCard } from "./linked-accounts-card";
import { PasskeysCard } from "./passkeys-card";
import { PeopleTab } from "./people-tab";
import { PictureField } from "./picture-field";
import { SecondFactorCard } from "./second-factor-card";
import { WithServerWarnings } from "./server-warnings";
import { SessionsTab } from "./sessions-tab";
import { StorageCard } from "./storage-card";
import { TokensTab } from "./tokens-tab";

type Entry = { tab: SettingsTab; text: string; panel: ComponentType; adminOnly?: boolean };

const ENTRIES: Entry[] = [
  { tab: "profile", text: "Profile", panel: ProfileTab },
  { tab: "sessions", text: "Sessions", panel: SessionsTab },
  { tab: "tokens", text: "Tokens", panel: TokensTab },
  { tab: "alerts", text: "Alerts", panel: AlertsTab },
  { tab: "people", text: "Users", panel: PeopleTab, adminOnly: true },
  { tab: "audit", text: "Audit log", panel: AuditTab, adminOnly: true },
];

const route = getRouteApi("/app/settings");

export function SettingsPage() {
  const user = useCurrentUser();
  const navigate = useNavigate({ from: "/settings" });
  const { tab } = route.useSearch();
  const entries = ENTRIES.filter((entry) => !entry.adminOnly || user.role === "admin");
  const current = entries.find((entry) => entry.tab === tab) ?? entries[0];
  usePageTitle(current ? `${current.text}, Settings` : "Settings");

  const tabs = (
    <Tabs
      value={current?.tab}
      onValueChange={(chosen) => void navigate({ search: { tab: ENTRIES.find((entry) => entry.tab === chosen)?.tab } })}
    >
      <TabList aria-label="Settings">
        {entries.map((entry) => (
          <Tab key={entry.tab} value={entry.tab}>
            {entry.text}
          </Tab>
        ))}
      </TabList>
      {entries.map(({ tab: value, panel: Panel }) => (
        <TabPanel key={value} value={value} tabIndex={-1}>
          <Panel />
        </TabPanel>
      ))}
    </Tabs>
  );
  return (
    <>
      <PageHeader title="Settings" />
      {user.role === "admin" ? <WithServerWarnings>{tabs}</WithServerWarnings> : tabs}
    </>
  );
}

const nameRules = z.object({ name: personName });

function ProfileTab() {
  const user = useCurrentUser();
  const { form, field, failure, isSubmitting, isDirty, onSubmit } = useApiForm({
    schema: nameRules,
    defaultValues: { name: user.name },
    submit: async ({ name }) => {
      const saved = await renameMe(name);
      form.reset({ name: saved.name });
      toast("Your name was changed.");
    },
  });

  return (
    <div className="grid max-w-5xl items-start gap-3.5 lg:grid-cols-2">
      <Card>
        <CardHeader title="Profile" note={<Badge>{user.role === "admin" ? "Administrator" : "Member"}</Badge>} />
        <PictureField />
        <ApiForm label="Profile" failure={failure} onSubmit={onSubmit}>
          <TextField label="Name" autoComplete="name" {...field("name")} />
          <dl className="grid gap-2 text-sm">
            <div className="flex flex-wrap justify-between gap-x-4">
              <dt className="text-dim">Email</dt>
              <dd className="break-all">
                {user.email} <Badge tone={user.email_verified ? "good" : "bad"}>{user.email_verified ? "confirmed" : "not confirmed"}</Badge>
              </dd>
            </div>
            <div className="flex flex-wrap justify-between gap-x-4">
              <dt className="text-dim">Account created</dt>
              <dd>
                <TimeAgo at={user.created_at} />
              </dd>
            </div>
          </dl>
          <Button type="submit" variant="primary" pending={isSubmitting} disabled={!isDirty} className="justify-self-end">
            Save name
          </Button>
        </ApiForm>
      </Card>
      <PasswordCard />
      <SecondFactorCard />
      <PasskeysCard />
      <LinkedAccountsCard />
      <StorageCard />
    </div>
  );
}

const passwordRules = z.object({ current_password: existingPassword, new_password: newPassword, keep_tokens: z.boolean() });

function PasswordCard() {
  const user = useCurrentUser();
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: passwordRules,
    defaultValues: { current_password: "", new_password: "", keep_tokens: false },
    submit: async (values) => {
      await changePassword(values);
      form.reset();
      toast(`Your password was changed. All other devices were signed out${values.keep_tokens ? "" : " and your API tokens revoked"}.`);
    },
  });
  return (
    <Card>
      <CardHeader title="Password" />
      <ApiForm label="Change password" failure={failure} onSubmit={onSubmit}>
        <input type="email" autoComplete="username" value={user.email} readOnly hidden />
        <PasswordField label="Current password" autoComplete="current-password" {...field("current_password")} />
        <NewPasswordField label="New password" typed={useWatch({ control: form.control, name: "new_password" })} person={user} {...field("new_password")} />
        <p className="text-sm text-dim">Changing the password signs out all your other devices and revokes your API tokens.</p>
        <CheckField label="Keep API tokens" {...field("keep_tokens")} />
        <Button type="submit" variant="primary" pending={isSubmitting} className="justify-self-end">
          Change password
        </Button>
      </ApiForm>
    </Card>
  );
}
