import { LOCAL } from "@/pages/offers/offer-words";
import type { OfferSelection } from "@/pages/offers/use-offer-selection";
import { useCurrentUser } from "@/shell/current-user";
import type { Draft } from "./script-draft";

type LocalChoicesProps = { selection: OfferSelection; draft: Draft; onChange: (change: Partial<Draft>) => void };

/** On this machine a script runs shut in; only an admin can let it out. */
export function LocalChoices({ selection, draft, onChange }: LocalChoicesProps) {
  const user = useCurrentUser();
  if (selection.chosen !== LOCAL) return null;
  return (
    <div className="mt-3 grid gap-2 border-t border-line pt-3 text-sm">
      <p className="text-dim">Here it runs in a sandbox: it sees its own folder, not the files of others, and no network.</p>
      {user.role === "admin" && (
        <>
          <Choice checked={draft.network} onChange={(network) => onChange({ network })} text="Let it use the network; it then reaches whatever this machine reaches" />
          <Choice checked={draft.confirmed} onChange={(confirmed) => onChange({ confirmed })} text="If no sandbox can be built here, run it without: it can then do all that the server can" />
        </>
      )}
    </div>
  );
}

function Choice({ checked, onChange, text }: { checked: boolean; onChange: (checked: boolean) => void; text: string }) {
  return (
    <label className="flex items-start gap-2.5 max-sm:py-1">
      <input type="checkbox" checked={checked} onChange={(event) => onChange(event.target.checked)} className="mt-0.5 size-4 shrink-0 accent-violet" />
      {text}
    </label>
  );
}
