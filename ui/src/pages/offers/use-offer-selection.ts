import { useQuery } from "@tanstack/react-query";
import { machinesQuery } from "@/api/jobs";
import { type Provider, providersQuery } from "@/api/providers";
import { type Offer, type OffersRequest, offersQuery } from "@/api/scripts";
import { LOCAL, type OfferChoice, choiceOf, keyOf } from "./offer-words";

/** Clouds that have no page of their own here are reached through this one. */
const ENGINE = "skypilot";

export const connectionOf = (providers: readonly Provider[], offer: Pick<Offer, "provider">): Provider | undefined =>
  providers.find(({ name }) => name === offer.provider) ?? providers.find(({ name }) => name === ENGINE);

/** What a template was made for. */
type MachinePreference = { provider: string; gpu: string | null };

/** What a person picked, and what is taken until they do. */
export type OfferPreference = { picked: string | null; preferred: MachinePreference | null };

/** What is taken when nobody has chosen: what is wished for, then what is recommended if it can be used, then this machine. */
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
  const gone = picked !== null && picked !== LOCAL && chosen !== LOCAL && keyOf(chosen) !== picked;
  return {
    offers,
    hasRequest: request !== null,
    connections,
    storage: providers.data?.storage ?? null,
    machines: machines.data?.items ?? null,
    chosen,
    gone,
    pick,
    /** What the job is started with; null is this machine. */
    choice: (chosen === LOCAL ? null : choiceOf(chosen)) as OfferChoice | null,
  };
}

export type OfferSelection = ReturnType<typeof useOfferSelection>;

/** What has to be done before the chosen place can be used, or null. */
export function missingConnection({ choice, connections }: Pick<OfferSelection, "choice" | "connections">): string | null {
  const service = choice && connectionOf(connections, choice);
  return service && !service.connected ? `Connect ${service.title} first, or choose another place.` : null;
}
