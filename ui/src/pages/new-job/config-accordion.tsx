import { ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";
import { type ConfigGroup, fieldsOf, isSet } from "@/forms/job-fields";
import { useConfigValues, useFieldError } from "./config-fields";

/** Fields that most people leave as they are. Opens by itself when one of them has a mistake. */
export function ConfigAccordion({ title, group, children }: { title: string; group: ConfigGroup; children: ReactNode }) {
  const [open, setOpen] = useState(false);
  const error = useFieldError();
  const values = useConfigValues();
  const fields = fieldsOf(group, values);
  const wrong = fields.some((field) => error(`config.${field.path}`));
  const changed = fields.filter((field) => isSet(field, values)).length;
  return (
    <details open={open || wrong} onToggle={(event) => setOpen(event.currentTarget.open)} className="group mt-4 border-t border-line pt-3">
      <summary className="flex cursor-pointer list-none items-center gap-1.5 text-xs text-dim hover:text-text">
        <ChevronRight aria-hidden className="size-3.5 shrink-0 transition-transform duration-150 group-open:rotate-90" />
        {title}
        <span className="ml-auto shrink-0 text-right text-faint">{changed === 0 ? "as recommended" : `${changed} changed`}</span>
      </summary>
      <div className="mt-3 grid gap-3.5 sm:grid-cols-2 xl:grid-cols-3">{children}</div>
    </details>
  );
}
