import type { Offer, Span } from "@/api/scripts";
import { hoursText } from "@/text/hours";
import { hourlyText } from "@/text/money";

/** What tells one offer from another, and what a job is started with. */
export type OfferChoice = Pick<Offer, "provider" | "gpu" | "gpus" | "kind" | "region">;

export const LOCAL = "local";

export const keyOf = ({ provider, gpu, gpus, kind, region }: OfferChoice) => [provider, gpu, gpus, kind, region ?? ""].join("|");

export const choiceOf = ({ provider, gpu, gpus, kind, region }: OfferChoice): OfferChoice => ({ provider, gpu, gpus, kind, region });

const KINDS: Record<Offer["kind"], string> = {
  on_demand: "on demand",
  spot: "spot: may be taken away",
  per_second: "by the second",
  monthly_units: "from monthly units",
  free: "free tier",
};

const AVAILABILITY: Record<Offer["availability"], string | null> = {
  immediate: "to be had now",
  queued: "there may be a queue",
  unknown: null,
  unavailable: "none to be had now",
};

export const gpuText = ({ gpu, gpus }: Pick<Offer, "gpu" | "gpus">) => (gpus > 1 ? `${gpus} × ${gpu}` : gpu);

export const offerTitle = (offer: Pick<Offer, "title" | "gpu" | "gpus">) => `${offer.title} · ${gpuText(offer)}`;

const aboutText = (hours: number) => hoursText(hours).replace(/^(?!under)/, "about ");

/** "$0.95 / h on demand · about 3 h 10 m · starts in about 4 m". */
export function offerLine(offer: Offer): string {
  const price = offer.hourly.high === 0 ? KINDS[offer.kind] : `${hourlyText(offer.hourly)} ${KINDS[offer.kind]}`;
  const parts = [price, aboutText(offer.hours.likely)];
  if (offer.waitHours.likely > 0) parts.push(`starts in ${aboutText(offer.waitHours.likely)}`);
  const had = AVAILABILITY[offer.availability];
  if (had) parts.push(had);
  if (offer.region) parts.push(offer.region);
  if (offer.relaunches > 0) parts.push(offer.relaunches === 1 ? "started again once, from its checkpoint" : `started again ${offer.relaunches} times, from its checkpoint`);
  return parts.join(" · ");
}

/** What speaks against an offer, without what stands beside its price already. */
export const cautionsOf = ({ cautions }: Pick<Offer, "cautions">) => cautions.filter((caution) => !/^Its price (was read on|is assumed)/.test(caution));

const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });

export const dateText = (date: string) => DATE.format(new Date(`${date}T00:00:00Z`));

export const hoursRange = ({ low, high }: Span) => `${hoursText(low)} to ${hoursText(high)}`;

/** The best of each service, in the order in which they were offered; the others are one click away. */
export function bestOfEach(offers: readonly Offer[]): Offer[] {
  const seen = new Set<string>();
  return offers.filter(({ provider }) => !seen.has(provider) && seen.add(provider));
}
