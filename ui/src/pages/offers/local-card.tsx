import type { Machine } from "@/api/types";
import { OfferCard } from "./offer-card";
import { LOCAL } from "./offer-words";
import type { OfferSelection } from "./use-offer-selection";

/** Prices count GPU memory in these. */
const GIB = 2 ** 30;
const NO_WORKER = "No worker is running here, so the job waits until one is.";

/** What speaks against this machine, in sentences. */
export function localCautions(machines: readonly Machine[], memoryGb: number | null): string[] {
  if (machines.length === 0) return [NO_WORKER];
  if (memoryGb === null) return [];
  const largest = Math.max(0, ...machines.flatMap(({ gpuMemoryBytes }) => gpuMemoryBytes)) / GIB;
  if (largest === 0) return ["It has no GPU; the job seems to want one, and may be slow or refuse to run."];
  return largest < memoryGb ? [`Its GPU has ${Math.round(largest)} GB; the job needs about ${Math.round(memoryGb)} GB.`] : [];
}

export function LocalCard({ group, selection, memoryGb }: { group: string; selection: OfferSelection; memoryGb: number | null }) {
  const machines = selection.machines ?? [];
  const devices = [...new Set(machines.flatMap(({ gpus }) => gpus))];
  return (
    <OfferCard
      group={group}
      title={`This machine · ${devices.join(", ") || "CPU"}`}
      line={machines.map(({ name }) => name).join(", ")}
      price="$0"
      priceNote="own hardware"
      checked={selection.chosen === LOCAL}
      onChoose={() => selection.pick(LOCAL)}
      cautions={selection.machines ? localCautions(machines, memoryGb) : []}
    />
  );
}
