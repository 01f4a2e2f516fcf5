import type { Provider } from "@/api/providers";
import { hoursText } from "@/text/hours";

export type CapabilityRow = { text: string; can: boolean; reason: string | null };

/** What a service can do, in words; a "no" has its reason. */
export function capabilityRows(given: Provider["capabilities"]): CapabilityRow[] {
  const rows: CapabilityRow[] = [
    { text: "runs jobs by itself", ...given.runsUnattended },
    { text: "several GPUs", ...given.severalGpus },
    { text: "several machines", ...given.severalNodes },
    { text: "spot prices", ...given.spot },
    { text: "tells its prices", ...given.livePrices },
  ];
  if (given.longestSeconds !== null) {
    rows.push({ text: `${hoursText(given.longestSeconds / 3600)} at a time`, can: true, reason: "Longer jobs go on from their checkpoint." });
  }
  return rows;
}
