import { getRouteApi, useNavigate } from "@tanstack/react-router";
import type { ComponentType } from "react";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { useCurrentUser } from "@/shell/current-user";
import { PageHeader } from "@/shell/page-header";
import type { SettingsTab } from "@/shell/search-params";
import { usePageTitle } from "@/shell/use-page-title";
import { AuditTab } from "./audit-tab";
import { PeopleTab } from "./people-tab";
import { ProfileTab } from "./profile-tab";
import { SessionsTab } from "./sessions-tab";
import { TokensTab } from "./tokens-tab";

type Entry = { tab: SettingsTab; text: string; panel: ComponentType; adminOnly?: boolean };

const ENTRIES: Entry[] = [
  { tab: "profile", text: "Profile", panel: ProfileTab },
  { tab: "sessions", text: "Sessions", panel: SessionsTab },
  { tab: "tokens", text: "Tokens", panel: TokensTab },
  { tab: "people", text: "People", panel: PeopleTab, adminOnly: true },
  { tab: "audit", text: "Audit", panel: AuditTab, adminOnly: true },
];

const route = getRouteApi("/app/settings");

export function SettingsPage() {
  const user = useCurrentUser();
  const navigate = useNavigate({ from: "/settings" });
  const { tab } = route.useSearch();
  const entries = ENTRIES.filter((entry) => !entry.adminOnly || user.role === "admin");
  const current = entries.find((entry) => entry.tab === tab) ?? entries[0];
  usePageTitle(current ? `${current.text}, Settings` : "Settings");

  return (
    <>
      <PageHeader title="Settings" />
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
    </>
  );
}
