import { KeyRound } from "lucide-react";

/** A fresh server: nobody can sign in yet, and only who can read its output may become the first administrator. */
export function SetupPanel() {
  return (
    <div className="flex gap-3.5 rounded-card border border-teal-soft/30 bg-teal/10 px-4 py-3.5 text-left">
      <KeyRound aria-hidden className="mt-0.5 size-4.5 shrink-0 text-teal-soft" />
      <div>
        <p className="font-[560]">This server has no account yet</p>
        <p className="mt-0.5 text-dim">
          Open the one-time link that the server printed when it started. It lets you create the first account, which
          becomes the administrator.
        </p>
      </div>
    </div>
  );
}
