import { CONFIG_FIELDS, type Json } from "@/forms/job-fields";
import { settingText } from "@/text/numbers";

/** A change of the config in the words of the form. */
export function changeFacts(changes: Json): [string, string][] {
  return Object.entries(changes).map(([path, value]) => {
    const field = CONFIG_FIELDS.find((known) => known.path === path);
    const option = field?.options?.find(([known]) => known === String(value))?.[1];
    const text = option ?? (typeof value === "number" ? settingText(value) : String(value));
    return [field?.label.replace(", at most … GB", ", in GB") ?? path, text];
  });
}
