import { useState } from "react";
import { sentenceOf } from "@/api/problem";
import { useProviderTitle } from "@/api/providers";
import type { ScriptQuote } from "@/api/scripts";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Facts } from "@/components/figures";
import { Notice, TextWithCode } from "@/components/notice";
import { gpuText } from "@/pages/offers/offer-selection";
import { hoursText, moneyRange, moneyText } from "@/text/numbers";

type QuoteDialogProps = { quote: ScriptQuote; onStart: () => Promise<void>; onClose: () => void };

/** The last confirmation before money is spent: everything was checked, nothing is rented yet. */
export function QuoteDialog({ quote, onStart, onClose }: QuoteDialogProps) {
  const providerTitle = useProviderTitle();
  const [pending, setPending] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  const machine = [providerTitle(quote.provider), quote.offer && gpuText(quote.offer), quote.offer?.region].filter(Boolean).join(" · ");

  async function start() {
    setPending(true);
    setFailure(null);
    try {
      await onStart();
    } catch (error) {
      setFailure(sentenceOf(error));
      setPending(false);
    }
  }

  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title="Rent this instance?" description={machine}>
      <Facts facts={[["Expected cost", moneyRange(quote.estimated_cost)], ["Ends", endText(quote.limits)], ...(quote.store ? ([["Files go through", quote.store.title]] as const) : [])]} />
      {quote.problem && (
        <Notice tone="attention" className="mt-3 text-sm">
          <TextWithCode text={quote.problem} />
        </Notice>
      )}
      {quote.reasons.length > 0 && (
        <ul className="mt-3 grid gap-1 border-t border-line pt-3 text-xs text-dim">
          {quote.reasons.map((reason) => (
            <li key={reason} className="wrap-anywhere">
              {reason}
            </li>
          ))}
        </ul>
      )}
      {quote.switch_off && !quote.switch_off.can && (
        <Notice tone="bad" className="mt-3 text-sm">
          {quote.switch_off.reason}
        </Notice>
      )}
      {failure && (
        <Notice tone="bad" role="alert" className="mt-4">
          {failure}
        </Notice>
      )}
      <div className="mt-5 flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button variant="primary" pending={pending} disabled={quote.problem !== null} onClick={() => void start()}>
          Rent and start
        </Button>
      </div>
    </Dialog>
  );
}

function endText(limits: ScriptQuote["limits"]): string {
  if (!limits) return "when the job is done";
  const ends = [limits.budget !== null && `at ${moneyText(limits.budget)}`, `after ${hoursText(limits.max_hours)}`].filter(Boolean);
  return `when the job is done, ${ends.join(" or ")}`;
}
