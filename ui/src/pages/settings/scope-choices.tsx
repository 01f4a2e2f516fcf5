import { useId } from "react";
import type { UseFormRegisterReturn } from "react-hook-form";
import type { Scope } from "@/api/types";

const CHOICES: { scope: Scope; text: string; adminOnly?: boolean }[] = [
  { scope: "read", text: "See projects and their details" },
  { scope: "write", text: "Create, change and delete them" },
  { scope: "admin", text: "Everything an administrator may do", adminOnly: true },
];

type ScopeChoicesProps = { registration: UseFormRegisterReturn; error?: string; admin: boolean };

export function ScopeChoices({ registration, error, admin }: ScopeChoicesProps) {
  const errorId = useId();
  return (
    <fieldset aria-describedby={error ? errorId : undefined}>
      <legend className="mb-1.5 text-xs text-dim">Rights</legend>
      <div className="grid gap-1.5">
        {CHOICES.filter((choice) => admin || !choice.adminOnly).map(({ scope, text }) => (
          <label
            key={scope}
            className="flex cursor-pointer items-center gap-3 rounded-control border border-line-strong px-3 py-2 transition-colors duration-150 hover:bg-white/4 has-checked:border-violet has-checked:bg-violet/12"
          >
            <input type="checkbox" value={scope} {...registration} className="size-4 accent-violet" />
            <span>
              <span className="font-[560]">{scope}</span> <span className="text-dim">{text}</span>
            </span>
          </label>
        ))}
      </div>
      {error && (
        <p id={errorId} className="mt-1.5 text-xs text-danger-soft">
          {error}
        </p>
      )}
    </fieldset>
  );
}
