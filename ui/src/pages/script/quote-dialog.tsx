import { useState } from "react";
import { sentenceOf } from "@/api/problem";
import { useProviderTitle } from "@/api/providers";
import type { ScriptQuote } from "@/api/scripts";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Facts } from "@/components/figures";
import { Notice } from "@/components/notice";
import { parseNumber } from "@/forms/rules";
import { gpuText } from "@/pages/offers/offer-selection";
import { hoursText, moneyRange, moneyText } from "@/text/numbers";
import type { Draft } from "./script-draft";

type QuoteDialogProps = { quote: ScriptQuote; draft: Pick<Draft, "budget" | "maxHours">; onStart: () => Promise<void>; onClose: () => void };

/** The last confirmation before money is spent: everything was checked, nothing is rented yet. */
export function QuoteDialog({ quote, draft, onStart, onClose }: QuoteDialogProps) {
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
      <Facts facts={[["Expected cost", moneyRange(quote.estimated_cost)], ["Ends", endText(draft)]]} />
      {quote.reasons.length > 0 && (
        <ul className="mt-3 grid gap-1 border-t border-line pt-3 text-xs text-dim">
          {quote.reasons.map((reason) => (
            <li key={reason} className="break-words">
              {reason}
            </li>
          ))}
        </ul>
      )}
      {failure && (
        <Notice tone="bad" role="alert" className="mt-4">
          {failure}
        </Notice>
      )}
      <div className="mt-5 flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button variant="primary" pending={pending} onClick={() => void start()}>
          Rent and start
        </Button>
      </div>
    </Dialog>
  );
}

function endText({ budget, maxHours }: QuoteDialogProps["draft"]): string {
  const [amount, hours] = [parseNumber(budget), parseNumber(maxHours)];
  const limits = [amount !== null && `at ${moneyText(amount)}`, hours !== null && `after ${hoursText(hours)}`].filter(Boolean);
  return limits.length > 0 ? `when the job is done, ${limits.join(" or ")}` : "when the job is done; no budget is set";
}
