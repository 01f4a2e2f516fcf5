import type { Job } from "@/api/types";
import { cn } from "@/components/class-names";
import { Notice } from "@/components/notice";
import { countText, counted } from "@/text/numbers";

type RunWarningsProps = { job: Pick<Job, "warnings" | "warningsLeftOut">; className?: string };

/** What the run itself warned of: rows it could not use, examples it cut, a template it replaced. */
export function RunWarnings({ job, className }: RunWarningsProps) {
  const { warnings, warningsLeftOut } = job;
  if (warnings.length === 0) return null;
  const errors = warnings.filter((warning) => warning.level === "error").length;
  const title = [errors > 0 && counted(errors, "error"), warnings.length > errors && counted(warnings.length - errors, "warning")].filter(Boolean).join(", ");
  return (
    <Notice role="region" aria-label="Warnings of the run" tone={errors > 0 ? "bad" : "attention"} className={cn("mt-2.5", className)}>
      <h2 className="text-sm font-[570]">{title}</h2>
      <ul className="mt-1 grid gap-1 text-dim">
        {warnings.map(({ level, line }) => (
          <li key={line} className={cn("break-words", level === "error" && "text-danger-soft")}>
            {line}
          </li>
        ))}
      </ul>
      {warningsLeftOut > 0 && <p className="mt-1 text-xs text-faint">{countText(warningsLeftOut)} more in the output.</p>}
    </Notice>
  );
}
