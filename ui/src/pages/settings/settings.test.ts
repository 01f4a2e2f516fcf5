import { describe, expect, it } from "vitest";
import { auditExportAddress, auditParams, NO_FILTER } from "@/api/account";
import { actionText, detailsText, subjectText } from "./audit-tab";
import { deviceName } from "./sessions-tab";

const UUID = "79684e78-9b0c-44c2-bf8f-30159225f8db";

describe("an audit entry", () => {
  it("says the action in words", () => {
    expect(actionText("api_token.created")).toBe("API token created");
    expect(actionText("user.signed_in")).toBe("User signed in");
    expect(actionText("totp.enabled")).toBe("Authenticator app enabled");
  });

  it("names its subject when it can, and shortens ids", () => {
    expect(subjectText({ subject: `project:${UUID}`, details: { name: "Contracts" } })).toBe("Contracts");
    expect(subjectText({ subject: `api_token:${UUID}`, details: {} })).toBe("api token 79684e78");
    expect(subjectText({ subject: "email:a@b.example", details: {} })).toBe("a@b.example");
  });

  it("lists what else was noted", () => {
    expect(detailsText({ name: "x", role: "admin", disabled: false, reason: null })).toBe("role: admin, disabled: no");
    expect(detailsText({ name: "x" })).toBeNull();
  });
});

describe("the filter of the audit log", () => {
  it("sends only the fields that are set", () => {
    expect(auditParams(NO_FILTER)).toEqual({});
    expect(auditParams({ ...NO_FILTER, actor: UUID, action: " API token" })).toEqual({ actor_id: UUID, action: "API token" });
    expect(auditParams({ ...NO_FILTER, project: "79684e78" })).toEqual({});
    expect(auditExportAddress({ ...NO_FILTER, project: UUID })).toBe(`/api/audit-events/export?project_id=${UUID}`);
  });

  it("includes the whole last day", () => {
    const { since, until } = auditParams({ ...NO_FILTER, from: "2026-03-01", to: "2026-03-01" });
    expect(new Date(until ?? 0).getTime() - new Date(since ?? 0).getTime()).toBe(24 * 3600 * 1000);
  });
});

describe("a device", () => {
  it.each([
    ["Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"],
    ["Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"],
    ["Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Mobile Safari/604.1", "Safari on iOS"],
    ["curl/8.5.0", "A script"],
    ["", "Unknown device"],
  ])("is named from %s", (userAgent, name) => {
    expect(deviceName(userAgent)).toBe(name);
  });
});
