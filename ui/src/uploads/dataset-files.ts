/** Files of examples, from a person's disk to the server. */
import { announceDataset, datasetContent, deleteDataset, refreshDataset } from "@/api/datasets";
import { sentenceOf } from "@/api/problem";
import type { Dataset } from "@/api/types";
import { toast, toastFailure } from "@/components/toasts";
import { startUpload } from "./upload-store";

export const SUFFIXES = [".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet"] as const;

/** Why a file need not be sent at all, or null. The server has the last word. */
export function fileMistake(file: Pick<File, "name" | "size">): string | null {
  if (!SUFFIXES.some((suffix) => file.name.toLowerCase().endsWith(suffix))) {
    return `“${file.name}” is no dataset: choose a file that ends in ${SUFFIXES.slice(0, -1).join(", ")} or ${SUFFIXES.at(-1)}.`;
  }
  return file.size === 0 ? `“${file.name}” is empty.` : null;
}

/** Begins to send each file; resolves to the datasets that they become. */
export async function sendDatasets(files: readonly File[]): Promise<Dataset[]> {
  const begun = await Promise.all(
    files.map(async (file) => {
      const mistake = fileMistake(file);
      if (mistake) {
        toastFailure(mistake);
        return null;
      }
      try {
        const dataset = await announceDataset({ filename: file.name, size: file.size });
        continueDataset(dataset, file);
        return dataset;
      } catch (error) {
        toastFailure(`“${file.name}” was not sent. ${sentenceOf(error)}`);
        return null;
      }
    }),
  );
  return begun.filter((dataset) => dataset !== null);
}

export function continueDataset(dataset: Dataset, file: File) {
  startUpload({
    target: { kind: "dataset", id: dataset.id },
    name: dataset.filename,
    parts: [{ file, to: datasetContent(dataset.id) }],
    onDone: () => {
      toast(`“${dataset.filename}” is here and is being looked at.`);
      void refreshDataset(dataset.id);
    },
    onCancel: () => deleteDataset(dataset.id),
  });
}
