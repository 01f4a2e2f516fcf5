/** Which models of the catalogue this machine can train, and how the list is narrowed. */
import type { Catalogue, CatalogueModel, Machine, Method } from "@/api/types";

export const METHOD_NAMES: Record<Method, string> = { lora: "LoRA", qlora: "QLoRA", full: "full" };

/** The largest memory that a model could lie in: a GPU's, or the host's where there is none. */
export function availableMemory(machines: readonly Machine[]): { bytes: number; where: "GPU" | "host" } | null {
  const gpus = machines.flatMap((machine) => machine.gpuMemoryBytes);
  if (gpus.length > 0) return { bytes: Math.max(...gpus), where: "GPU" };
  if (machines.length === 0) return null;
  return { bytes: Math.max(...machines.map((machine) => machine.hostMemoryBytes)), where: "host" };
}

export type Narrowing = { text: string; family: string; fits: Method | ""; available: number | null };

export type Listed = CatalogueModel & { family: string };

/** Models that match, in the catalogue's order. */
export function narrowed(catalogue: Catalogue, { text, family, fits, available }: Narrowing): Listed[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return catalogue.families
    .flatMap(({ name, models }) => models.map((model) => ({ ...model, family: name })))
    .filter((model) => {
      const haystack = `${model.id} ${model.family} ${model.licence}`.toLowerCase();
      if (!words.every((word) => haystack.includes(word))) return false;
      if (family !== "" && model.family !== family) return false;
      return fits === "" || available === null || (model.memory[fits] ?? Infinity) <= available;
    });
}
