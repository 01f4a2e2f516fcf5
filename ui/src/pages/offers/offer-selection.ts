/** Offers: how they are described, and which one is selected. */
import { useQuery } from "@tanstack/react-query";
import { machinesQuery } from "@/api/jobs";
import { type Provider, providersQuery } from "@/api/providers";
import { type Offer, offersQuery, type OffersRequest, type Span } from "@/api/scripts";
import { aboutText, hourlyText, hoursText, moneyText } from "@/text/numbers";

/** What tells one offer from another, and what a job is started with. */
export type OfferChoice = Pick<Offer, "provider" | "gpu" | "gpus" | "kind" | "region">;

export const LOCAL = "local";

export const keyOf = ({ provider, gpu, gpus, kind, region }: OfferChoice) => [provider, gpu, gpus, kind, region ?? ""].join("|");

const choiceOf = ({ provider, gpu, gpus, kind, region }: OfferChoice): OfferChoice => ({ provider, gpu, gpus, kind, region });

const KINDS: Record<Offer["kind"], string> = {
  on_demand: "on demand",
  spot: "spot, can be interrupted",
  per_second: "billed per second",
  monthly_units: "paid with monthly compute units",
  free: "free tier",
};

const AVAILABILITY: Record<Offer["availability"], string | null> = {
  immediate: "available now",
  queued: "may have to wait in a queue",
  unknown: null,
  unavailable: "not available now",
};

export const gpuText = ({ gpu, gpus }: Pick<Offer, "gpu"> & Partial<Pick<Offer, "gpus">>) => (gpus && gpus > 1 ? `${gpus} × ${gpu}` : gpu);

export const offerTitle = (offer: Pick<Offer, "title" | "gpu" | "gpus">) => `${offer.title} · ${gpuText(offer)}`;

/** "$0.95 / h on demand · takes about 3 h 10 m · starts in about 4 m". */
export function offerLine(offer: Offer): string {
  const price = offer.hourly.high === 0 ? KINDS[offer.kind] : `${hourlyText(offer.hourly)} ${KINDS[offer.kind]}`;
  const parts = [price, `takes ${aboutText(hoursText(offer.hours.likely))}`];
  if (offer.wait_hours.likely > 0) parts.push(`starts in ${aboutText(hoursText(offer.wait_hours.likely))}`);
  const had = AVAILABILITY[offer.availability];
  if (had) parts.push(had);
  if (offer.region) parts.push(offer.region);
  if (offer.relaunches > 0) parts.push(offer.relaunches === 1 ? "the job will restart once from a checkpoint" : `the job will restart ${offer.relaunches} times from a checkpoint`);
  return parts.join(" · ");
}

/** "covered by credit", or how much of the likely cost is; null without a credit. */
export function creditText({ credit }: Pick<Offer, "credit">): string | null {
  if (!credit) return null;
  return credit.to_pay.likely === 0 ? "covered by credit" : `${moneyText(credit.covered.likely)} covered by credit`;
}

/** Cautions of an offer, without those that its price already shows. */
export const cautionsOf = ({ cautions }: Pick<Offer, "cautions">) => cautions.filter((caution) => !/^The price is (from|an assumption)/.test(caution));

const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });

export const dateText = (date: string) => DATE.format(new Date(`${date}T00:00:00Z`));

export function hoursRange({ low, high }: Span): string {
  const [shortest, longest] = [hoursText(low), hoursText(high)];
  return shortest === longest ? shortest : `${shortest} to ${longest}`;
}

/** The best of each service, in the order in which they were offered; the others are one click away. */
export function bestOfEach(offers: readonly Offer[]): Offer[] {
  const seen = new Set<string>();
  return offers.filter(({ provider }) => !seen.has(provider) && seen.add(provider));
}

/** Clouds that have no page of their own here are reached through this one. */
const ENGINE = "skypilot";

export const connectionOf = (providers: readonly Provider[], offer: Pick<Offer, "provider">): Provider | undefined =>
  providers.find(({ name }) => name === offer.provider) ?? providers.find(({ name }) => name === ENGINE);

/** The sentence for a provider whose machines are billed on if the server never comes back, or null. */
export function noSwitchOff(provider: Provider | undefined): string | null {
  const capability = provider?.capabilities.switch_off;
  return capability && !capability.can ? capability.reason : null;
}

/** What a template was made for. */
type MachinePreference = { provider: string; gpu: string | null };

/** What a person picked, and what is taken until they do. */
export type OfferPreference = { picked: string | null; preferred: MachinePreference | null };

/** The picked offer; else the preferred one, then the recommended one if its provider is connected, then this machine. */
export function resolve(picked: string | null, preferred: MachinePreference | null, offers: readonly Offer[], providers: readonly Provider[]): Offer | typeof LOCAL {
  if (picked === LOCAL) return LOCAL;
  const chosen = offers.find((offer) => keyOf(offer) === picked);
  if (chosen) return chosen;
  if (preferred?.provider === LOCAL) return LOCAL;
  const there = offers.filter(({ provider }) => provider === preferred?.provider);
  const match = there.find(({ gpu }) => gpu === preferred?.gpu) ?? there[0];
  if (match) return match;
  const best = offers.find(({ recommended }) => recommended);
  return best && connectionOf(providers, best)?.connected ? best : LOCAL;
}

/** Where nothing is rented until somebody says so. */
export const PREFER_LOCAL: OfferPreference = { picked: null, preferred: { provider: LOCAL, gpu: null } };

/** Where a job could run, and which of these is chosen. */
export function useOfferSelection(wanted: OffersRequest | null, { picked, preferred }: OfferPreference, pick: (key: string) => void) {
  const providers = useQuery(providersQuery);
  const connections = providers.data?.items ?? [];
  const engines = connections.some(({ name, connected }) => name === ENGINE && connected) ? [ENGINE] : [];
  const request = wanted && { ...wanted, constraints: { engines, ...wanted.constraints } };
  const offers = useQuery(offersQuery(request));
  const machines = useQuery(machinesQuery);
  const available = request === null ? [] : (offers.data?.offers ?? []);
  const chosen = resolve(picked, preferred, available, connections);
  const gone = picked !== null && picked !== LOCAL && !available.some((offer) => keyOf(offer) === picked);
  return {
    offers,
    hasRequest: request !== null,
    connections,
    storage: providers.data?.storage ?? null,
    machines: machines.data?.items ?? null,
    chosen,
    gone,
    pick,
    /** The limits that a job gets unless somebody types others; null on this machine. */
    limits: chosen === LOCAL ? null : chosen.limits,
    /** What the job is started with; null is this machine. */
    choice: (chosen === LOCAL ? null : choiceOf(chosen)) as OfferChoice | null,
  };
}

export type OfferSelection = ReturnType<typeof useOfferSelection>;

/** What has to be done before the chosen offer can be used, or null. */
export function missingConnection({ choice, connections }: Pick<OfferSelection, "choice" | "connections">): string | null {
  const service = choice && connectionOf(connections, choice);
  return service && !service.connected ? `Connect ${service.title} first, or choose another offer.` : null;
}
