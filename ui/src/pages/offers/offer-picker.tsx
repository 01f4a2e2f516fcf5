import { Link } from "@tanstack/react-router";
import { type ReactNode, useId, useState } from "react";
import type { Provider } from "@/api/providers";
import type { Offer, Offers } from "@/api/scripts";
import { Button } from "@/components/button";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { TextWithCode } from "@/components/text-with-code";
import { SkeletonRows } from "@/components/skeleton";
import { ConnectDialog } from "@/pages/providers/connect-dialog";
import { moneyRange } from "@/text/money";
import { counted } from "@/text/numbers";
import { ExcludedList } from "./excluded-list";
import { LocalCard } from "./local-card";
import { OfferCard } from "./offer-card";
import { OfferDetails } from "./offer-details";
import { LOCAL, bestOfEach, cautionsOf, dateText, keyOf, offerLine, offerTitle } from "./offer-words";
import { type OfferSelection, connectionOf } from "./use-offer-selection";

type OfferPickerProps = {
  selection: OfferSelection;
  /** What the job asks of a GPU; null: none is needed. */
  memoryGb: number | null;
  /** Where “Connect” comes back to; without it a dialog asks for the key, and nothing that was typed is left. */
  back?: string;
  /** What can be done at a service, by its name, while it is not connected. */
  instead?: Record<string, ReactNode>;
  /** Said while there is nothing to ask for offers with. */
  waiting: string;
};

/** This machine and every service that could run a job, as cards of which one is chosen. */
export function OfferPicker({ selection, memoryGb, back, instead = {}, waiting }: OfferPickerProps) {
  const group = useId();
  return (
    <fieldset className="grid min-w-0 gap-2">
      <legend className="sr-only">Where to run</legend>
      <LocalCard group={group} selection={selection} memoryGb={memoryGb} />
      {selection.storage && !selection.storage.ready && (
        <Notice tone="attention" className="text-sm">
          {selection.storage.reason}
        </Notice>
      )}
      {selection.hasRequest ? (
        <Loaded query={selection.offers} skeleton={<SkeletonRows rows={3} className="h-16" />}>
          {(result) => <OfferList group={group} result={result} selection={selection} back={back} instead={instead} />}
        </Loaded>
      ) : (
        <p className="text-sm text-dim">{waiting}</p>
      )}
    </fieldset>
  );
}

type OfferListProps = { group: string; result: Offers; selection: OfferSelection; back?: string; instead: Record<string, ReactNode> };

function OfferList({ group, result, selection, back, instead }: OfferListProps) {
  const [all, setAll] = useState(false);
  const best = bestOfEach(result.offers);
  const { chosen } = selection;
  const chosenKey = chosen === LOCAL ? LOCAL : keyOf(chosen);
  const visible = all ? result.offers : result.offers.filter((offer) => best.includes(offer) || keyOf(offer) === chosenKey);
  return (
    <>
      {selection.gone && (
        <Notice tone="attention" role="status" className="text-sm">
          The offer you chose no longer suits this script. Another one is chosen for now.
        </Notice>
      )}
      {visible.map((offer) => (
        <OneOffer key={keyOf(offer)} group={group} offer={offer} checked={keyOf(offer) === chosenKey} onChoose={() => selection.pick(keyOf(offer))} provider={connectionOf(selection.connections, offer)} back={back} instead={instead[offer.provider]} />
      ))}
      {result.offers.length === 0 && <p className="text-sm text-dim">No service has a machine for this. Below is why.</p>}
      <div className="flex flex-wrap items-start justify-between gap-2">
        {result.offers.length > best.length && (
          <Button size="small" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Show the best of each service" : `Show all ${counted(result.offers.length, "offer")}`}
          </Button>
        )}
        <ExcludedList excluded={result.excluded} />
      </div>
    </>
  );
}

type OneOfferProps = { group: string; offer: Offer; checked: boolean; onChoose: () => void; provider: Provider | undefined; back?: string; instead: ReactNode };

function OneOffer({ group, offer, checked, onChoose, provider, back, instead }: OneOfferProps) {
  const assumed = offer.assumed.includes("price");
  return (
    <OfferCard
      group={group}
      title={offerTitle(offer)}
      line={offerLine(offer)}
      price={moneyRange(offer.cost.total)}
      priceNote={assumed ? "price assumed" : <span className={offer.stale ? "text-warning" : undefined}>price read {dateText(offer.readOn)}</span>}
      recommended={offer.recommended}
      checked={checked}
      onChoose={onChoose}
      reasons={offer.reasons}
      cautions={cautionsOf(offer)}
      details={<OfferDetails offer={offer} />}
      action={provider && !provider.connected && (instead ?? <ConnectService provider={provider} back={back} onConnect={onChoose} />)}
    />
  );
}

/** Whoever connects a service for an offer wants that one. */
function ConnectService({ provider, back, onConnect }: { provider: Provider; back?: string; onConnect: () => void }) {
  const [asking, setAsking] = useState(false);
  if (!provider.available) return (
    <p className="max-w-sm text-dim sm:text-right">
      <TextWithCode text={provider.reason ?? ""} />
    </p>
  );
  const text = `Connect ${provider.title}`;
  if (back === undefined) {
    return (
      <>
        <Button
          size="small"
          onClick={() => {
            onConnect();
            setAsking(true);
          }}
        >
          {text}
        </Button>
        {asking && <ConnectDialog provider={provider} onClose={() => setAsking(false)} />}
      </>
    );
  }
  return (
    <Button asChild size="small">
      <Link to="/providers" search={{ connect: provider.name, back }} onClick={onConnect}>
        {text}
      </Link>
    </Button>
  );
}
