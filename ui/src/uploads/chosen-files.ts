/** Uploads of files that a person chose: dataset files and model folders. */
import { announceDataset, datasetContent, deleteDataset, refreshDataset } from "@/api/datasets";
import { addModel, deleteModel, forgetModels, modelFile } from "@/api/models";
import { sentenceOf } from "@/api/problem";
import type { Dataset, Model } from "@/api/types";
import { toast, toastFailure } from "@/components/toasts";
import { startUpload } from "./upload-store";

const TEXTS = [".jsonl", ".json", ".csv", ".tsv", ".txt"] as const;

/** What a person is told; compressed files end in one of the text endings and .gz, .zst or .zip. */
export const SUFFIXES = [...TEXTS, ".parquet", ".gz", ".zst", ".zip"] as const;


/** Why a file need not be sent at all, or null. The server has the last word. */
export function fileMistake(file: Pick<File, "name" | "size">): string | null {
  const name = file.name.toLowerCase();
  const compressed = [".gz", ".zst"].some((suffix) => name.endsWith(suffix));
  const readable = compressed ? TEXTS.some((inner) => name.slice(0, name.lastIndexOf(".")).endsWith(inner)) : SUFFIXES.some((suffix) => name.endsWith(suffix));
  if (!readable) {
    return `“${file.name}” is not a supported dataset file. Choose a file that ends in ${SUFFIXES.slice(0, -1).join(", ")} or ${SUFFIXES.at(-1)}.`;
  }
  return file.size === 0 ? `“${file.name}” is empty.` : null;
}

/** Begins to send each file; resolves to the datasets that they become. `announce`: tell the end of an upload, which the page does not show. */
export async function sendDatasets(files: readonly File[], { announce = true } = {}): Promise<Dataset[]> {
  const begun = await Promise.all(
    files.map(async (file) => {
      const mistake = fileMistake(file);
      if (mistake) {
        toastFailure(mistake);
        return null;
      }
      try {
        const dataset = await announceDataset({ filename: file.name, size: file.size });
        continueDataset(dataset, file, { announce });
        return dataset;
      } catch (error) {
        toastFailure(`“${file.name}” was not uploaded. ${sentenceOf(error)}`);
        return null;
      }
    }),
  );
  return begun.filter((dataset) => dataset !== null);
}

export function continueDataset(dataset: Dataset, file: File, { announce = true } = {}) {
  startUpload({
    target: { kind: "dataset", id: dataset.id },
    name: dataset.filename,
    parts: [{ file, to: datasetContent(dataset.id) }],
    onDone: () => {
      if (announce) toast(`“${dataset.filename}” was uploaded and is being inspected.`);
      void refreshDataset(dataset.id);
    },
    onCancel: () => deleteDataset(dataset.id),
  });
}

type FolderFile = { path: string; file: File };
export type Folder = { name: string; files: FolderFile[]; leftOut: string[]; size: number };

/** What a model consists of here, in one folder. Weights are read as safetensors only; programs never. */
const NEEDED = /^[A-Za-z0-9][A-Za-z0-9_.-]*\.(safetensors|json|model|jinja|txt)$/;

/** The files of a chosen folder that make the model, with paths inside it. */
export function readFolder(chosen: readonly File[]): Folder {
  const files: FolderFile[] = [];
  const leftOut: string[] = [];
  let name = "";
  for (const file of chosen) {
    const [top = "", ...rest] = (file.webkitRelativePath || file.name).split("/");
    const inside = rest.length > 0;
    if (inside) name = top;
    const path = inside ? rest.join("/") : top;
    if (file.size > 0 && NEEDED.test(path)) files.push({ path, file });
    else leftOut.push(path);
  }
  return { name, files, leftOut, size: files.reduce((sum, { file }) => sum + file.size, 0) };
}

/** Why a folder is no model that could be sent, or null. The server's check says the rest. */
export function folderMistake({ files, leftOut }: Folder): string | null {
  if (files.length + leftOut.length === 0) return "This folder is empty.";
  if (!files.some(({ path }) => path === "config.json")) return "This folder has no config.json. Choose the folder that directly contains the model files.";
  if (!files.some(({ path }) => path.endsWith(".safetensors"))) return "This folder has no .safetensors weights. Other weight formats are not accepted because they can contain code. Convert the weights to safetensors first.";
  return null;
}

export async function sendModel(folder: Folder, name: string): Promise<Model> {
  const model = await addModel({ source: "upload", name, files: folder.files.map(({ path, file }) => ({ path, size: file.size })) });
  continueModel(model, folder);
  return model;
}

export function continueModel(model: Pick<Model, "id" | "name">, folder: Folder) {
  startUpload({
    target: { kind: "model", id: model.id },
    name: model.name,
    parts: folder.files.map(({ path, file }) => ({ file, to: modelFile(model.id, path) })),
    onDone: () => {
      toast(`“${model.name}” was uploaded and checked.`);
      void forgetModels();
    },
    onCancel: async () => {
      await deleteModel(model.id);
    },
  });
}
