import { ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useWatch } from "react-hook-form";
import { CONFIG_GROUPS, type ConfigGroup, valueAt } from "@/forms/job-config";
import type { JobFormValues } from "@/forms/job-rules";
import { useFieldError } from "./config-fields";

/** Fields that most people leave as they are. Opens by itself when one of them has a mistake. */
export function Fold({ title, group, children }: { title: string; group: ConfigGroup; children: ReactNode }) {
  const [open, setOpen] = useState(false);
  const error = useFieldError();
  const config = useWatch<JobFormValues, "config">({ name: "config" });
  const fields = CONFIG_GROUPS[group];
  const wrong = fields.some((field) => error(`config.${field.path}`));
  const set = fields.filter((field) => String(valueAt(config, field.path) ?? "").trim() !== "").length;
  return (
    <details open={open || wrong} onToggle={(event) => setOpen(event.currentTarget.open)} className="group mt-4 border-t border-line pt-3">
      <summary className="flex cursor-pointer list-none items-center gap-1.5 text-xs text-dim hover:text-text">
        <ChevronRight aria-hidden className="size-3.5 transition-transform duration-150 group-open:rotate-90" />
        {title}
        <span className="ml-auto text-faint">{set === 0 ? "all at recommended values" : `${set} changed`}</span>
      </summary>
      <div className="mt-3 grid gap-3.5 sm:grid-cols-2 xl:grid-cols-3">{children}</div>
    </details>
  );
}
