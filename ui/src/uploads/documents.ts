/** Documents that a person chose: which of them are sent, and as what. */
import { announceDocuments, datasetContent, deleteDataset, refreshDataset } from "@/api/datasets";
import type { Dataset } from "@/api/types";
import { toast } from "@/components/toasts";
import { startUpload } from "./upload-store";
import { type Packed, zipFiles } from "./zip";

export const DOCUMENT_SUFFIXES = [".pdf", ".docx", ".md", ".markdown", ".html", ".htm", ".txt"] as const;

export type ChosenDocuments = { name: string; files: Packed[]; archive: File | null; leftOut: string[]; size: number };

export const NO_DOCUMENTS: ChosenDocuments = { name: "", files: [], archive: null, leftOut: [], size: 0 };

/** Sorts chosen files; the server says the rest. One .zip is sent as it is. */
export function readDocuments(chosen: readonly File[]): ChosenDocuments {
  const [only] = chosen;
  if (only && chosen.length === 1 && only.name.toLowerCase().endsWith(".zip")) {
    return { ...NO_DOCUMENTS, name: only.name.replace(/\.zip$/i, ""), archive: only, size: only.size };
  }
  const files: Packed[] = [];
  const leftOut: string[] = [];
  let folder = "";
  for (const file of chosen) {
    const path = file.webkitRelativePath || file.name;
    const parts = path.split("/");
    if (parts.length > 1) folder = parts[0] ?? "";
    if (parts.some((part) => part.startsWith("."))) continue;
    const supported = DOCUMENT_SUFFIXES.some((suffix) => path.toLowerCase().endsWith(suffix));
    if (supported && file.size > 0) files.push({ path, file });
    else leftOut.push(path);
  }
  files.sort((a, b) => (a.path < b.path ? -1 : 1));
  const name = folder || (files.length === 1 ? (files[0]?.path.replace(/\.[^.]+$/, "") ?? "") : "documents");
  return { name, files, archive: null, leftOut, size: files.reduce((sum, { file }) => sum + file.size, 0) };
}

/** Begins to send them as one archive; resolves to the dataset that they become. */
export async function sendDocuments(chosen: ChosenDocuments, fields: { name: string; passage_characters: number }): Promise<Dataset> {
  const file = chosen.archive ?? (await zipFiles(chosen.files));
  const filename = chosen.archive?.name ?? `${chosen.name}.zip`;
  const dataset = await announceDocuments({ ...fields, filename, size: file.size });
  startUpload({
    target: { kind: "dataset", id: dataset.id },
    name: filename,
    parts: [{ file, to: datasetContent(dataset.id) }],
    onDone: () => {
      toast(`“${dataset.name}” was uploaded and is being read.`);
      void refreshDataset(dataset.id);
    },
    onCancel: () => deleteDataset(dataset.id),
  });
  return dataset;
}
