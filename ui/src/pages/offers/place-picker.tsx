import { Link } from "@tanstack/react-router";
import { type ReactNode, useId, useState } from "react";
import type { Provider } from "@/api/providers";
import type { Offer, Offers } from "@/api/scripts";
import { Button } from "@/components/button";
import { Loaded } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { Spoken } from "@/components/spoken";
import { SkeletonRows } from "@/components/skeleton";
import { ConnectDialog } from "@/pages/providers/connect-dialog";
import { moneyRange } from "@/text/money";
import { counted } from "@/text/numbers";
import { ExcludedList } from "./excluded-list";
import { LocalCard } from "./local-card";
import { OfferCard } from "./offer-card";
import { OfferDetails } from "./offer-details";
import { LOCAL, bestOfEach, cautionsOf, dateText, keyOf, offerLine, offerTitle } from "./offer-words";
import { type Places, connectionOf } from "./use-places";

type PlacePickerProps = {
  places: Places;
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
export function PlacePicker({ places, memoryGb, back, instead = {}, waiting }: PlacePickerProps) {
  const group = useId();
  return (
    <fieldset className="grid min-w-0 gap-2">
      <legend className="sr-only">Where to run</legend>
      <LocalCard group={group} places={places} memoryGb={memoryGb} />
      {places.storage && !places.storage.ready && (
        <Notice tone="attention" className="text-sm">
          {places.storage.reason}
        </Notice>
      )}
      {places.asked ? (
        <Loaded query={places.offers} skeleton={<SkeletonRows rows={3} className="h-16" />}>
          {(found) => <OfferList group={group} found={found} places={places} back={back} instead={instead} />}
        </Loaded>
      ) : (
        <p className="text-sm text-dim">{waiting}</p>
      )}
    </fieldset>
  );
}

type OfferListProps = { group: string; found: Offers; places: Places; back?: string; instead: Record<string, ReactNode> };

function OfferList({ group, found, places, back, instead }: OfferListProps) {
  const [all, setAll] = useState(false);
  const best = bestOfEach(found.offers);
  const { chosen } = places;
  const chosenKey = chosen === LOCAL ? LOCAL : keyOf(chosen);
  const shown = all ? found.offers : found.offers.filter((offer) => best.includes(offer) || keyOf(offer) === chosenKey);
  return (
    <>
      {places.gone && (
        <Notice tone="attention" role="status" className="text-sm">
          The offer you chose no longer suits this script. Another one is chosen for now.
        </Notice>
      )}
      {shown.map((offer) => (
        <OneOffer key={keyOf(offer)} group={group} offer={offer} checked={keyOf(offer) === chosenKey} onChoose={() => places.pick(keyOf(offer))} provider={connectionOf(places.connections, offer)} back={back} instead={instead[offer.provider]} />
      ))}
      {found.offers.length === 0 && <p className="text-sm text-dim">No service has a machine for this. Below is why.</p>}
      <div className="flex flex-wrap items-start justify-between gap-2">
        {found.offers.length > best.length && (
          <Button size="small" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Show the best of each service" : `Show all ${counted(found.offers.length, "offer")}`}
          </Button>
        )}
        <ExcludedList excluded={found.excluded} />
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
      <Spoken text={provider.reason ?? ""} />
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
