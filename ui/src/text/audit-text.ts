import type { AuditEvent } from "@/api/types";

const UUID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;

/** "api_token.created" in words: "API token created". */
export function actionText(action: string): string {
  const words = action.replaceAll(/[._]/g, " ").replace(/\bapi\b/, "API");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** What it was done to: by name when the entry knows one, by the start of its id otherwise. */
export function subjectText({ subject, details }: Pick<AuditEvent, "subject" | "details">): string {
  if (typeof details.name === "string") return details.name;
  const [kind = "", id = ""] = subject.split(/:(.*)/s);
  return UUID.test(id) ? `${kind.replaceAll("_", " ")} ${id.slice(0, 8)}` : id || subject;
}

/** Everything else that was noted: "role: admin, disabled: no". */
export function detailsText(details: AuditEvent["details"]): string | null {
  const noted = Object.entries(details).filter(([key, value]) => key !== "name" && value !== null && value !== "");
  if (noted.length === 0) return null;
  return noted.map(([key, value]) => `${key.replaceAll("_", " ")}: ${valueText(value)}`).join(", ");
}

const valueText = (value: unknown) => (typeof value === "boolean" ? (value ? "yes" : "no") : String(value));
