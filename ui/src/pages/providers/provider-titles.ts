import { useQuery } from "@tanstack/react-query";
import { providersQuery } from "@/api/providers";

/** A service's name as it writes it itself; this machine has one, too. */
export function useProviderTitle() {
  const providers = useQuery(providersQuery);
  return (name: string) => (name === "local" ? "This machine" : (providers.data?.items.find((provider) => provider.name === name)?.title ?? name));
}
