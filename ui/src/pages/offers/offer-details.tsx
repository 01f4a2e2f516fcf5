import type { Offer } from "@/api/scripts";
import { Facts } from "@/pages/jobs/facts";
import { moneyRange } from "@/text/money";
import { dateText, hoursRange } from "./offer-words";

/** Everything a price is made of, and where it was read. */
export function OfferDetails({ offer }: { offer: Offer }) {
  const { compute, startUp, storage, network } = offer.cost;
  return (
    <div className="grid gap-2">
      <Facts
        facts={[
          ["Computing", moneyRange(compute)],
          ["Until it starts", moneyRange(startUp)],
          ["Disk", moneyRange(storage)],
          ["Network", moneyRange(network)],
          ["Hours", hoursRange(offer.hours)],
          ["Memory of one GPU", `${offer.memoryGb} GB`],
          ["Price read", `${dateText(offer.readOn)}${offer.stale ? ", more than 30 days ago" : ""}`],
        ]}
      />
      {offer.assumed.length > 0 && <p className="text-faint">Assumed, read nowhere: {offer.assumed.join(", ")}.</p>}
      {offer.features.length > 0 && <p className="text-faint">{offer.features.join("; ")}.</p>}
      <p className="break-words text-faint">Source: {offer.source}</p>
    </div>
  );
}
