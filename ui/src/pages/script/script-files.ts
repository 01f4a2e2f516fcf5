/** The files of a script job: read from the disk or from a drop, split into texts and others, and which are left out. */

export type ScriptFile = { path: string; text: string } | { path: string; bytes: Uint8Array };

export const isText = (file: ScriptFile): file is Extract<ScriptFile, { text: string }> => "text" in file;
export const sizeOf = (file: ScriptFile) => (isText(file) ? new Blob([file.text]).size : file.bytes.byteLength);

/** A file and where it lies in the folder that was chosen. */
export type IncomingFile = { path: string; file: File };

/** Folders that are made anew wherever the script runs; hidden ones never travel. */
const LEFT_OUT = new Set(["__pycache__", "node_modules", "venv", "env", "wandb", "site-packages"]);
const ENTRIES = ["train.py", "main.py", "run.py", "finetune.py"];

export const isIncluded = (path: string) => !path.split("/").some((part) => part.startsWith(".") || LEFT_OUT.has(part)) && !path.endsWith(".pyc");

/** The folder that everything came in; "" for single files. */
export function folderName(incoming: readonly IncomingFile[]): string {
  const tops = new Set(incoming.map(({ path }) => path.slice(0, Math.max(0, path.indexOf("/")))));
  const [top = ""] = tops;
  return tops.size === 1 ? top : "";
}

/** A chosen folder puts its own name before every path; the script knows nothing of it. */
export function withoutTop(incoming: readonly IncomingFile[]): IncomingFile[] {
  const top = folderName(incoming);
  return top === "" ? [...incoming] : incoming.map(({ path, file }) => ({ path: path.slice(top.length + 1), file }));
}

export async function readFile({ path, file }: IncomingFile): Promise<ScriptFile> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const text = textOf(bytes);
  return text === null ? { path, bytes } : { path, text };
}

/** Null for what is no text: a picture, weights, an array. */
function textOf(bytes: Uint8Array): string | null {
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** Newer files replace those with the same path. */
export function merged(before: readonly ScriptFile[], added: readonly ScriptFile[]): ScriptFile[] {
  const paths = new Set(added.map(({ path }) => path));
  return [...before.filter(({ path }) => !paths.has(path)), ...added].toSorted(inOrder);
}

/** Files of the folder itself first, then those further in, each by name. */
function inOrder(a: ScriptFile, b: ScriptFile): number {
  const depth = a.path.split("/").length - b.path.split("/").length;
  return depth !== 0 ? depth : a.path.localeCompare(b.path);
}

export const canStart = ({ path }: ScriptFile) => path.endsWith(".py") || path.endsWith(".ipynb");

/** The file that a job most likely begins with. */
export function entryOf(files: readonly ScriptFile[]): string | null {
  const programs = files.filter(canStart).map(({ path }) => path);
  const named = ENTRIES.find((name) => programs.includes(name));
  if (named) return named;
  const own = files.filter((file) => canStart(file) && isText(file) && file.text.includes("__main__"));
  return own[0]?.path ?? programs[0] ?? null;
}

function base64(bytes: Uint8Array): string {
  let text = "";
  // A call takes only so many arguments.
  for (let start = 0; start < bytes.length; start += 0x8000) text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  return btoa(text);
}

const bytesOf = (text: string) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

/** A file as the server sends it. */
export const fileFrom = ({ path, text, base64: encoded }: { path: string; text?: string | null; base64?: string | null }): ScriptFile =>
  typeof text === "string" ? { path, text } : { path, bytes: bytesOf(encoded ?? "") };

export const fileBodies = (files: readonly ScriptFile[]) => files.map((file) => (isText(file) ? file : { path: file.path, base64: base64(file.bytes) }));

const batchOf = (reader: FileSystemDirectoryReader) => new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
const fileOf = (entry: FileSystemFileEntry) => new Promise<File>((resolve, reject) => entry.file(resolve, reject));

const isFile = (entry: FileSystemEntry): entry is FileSystemFileEntry => entry.isFile;
const isFolder = (entry: FileSystemEntry): entry is FileSystemDirectoryEntry => entry.isDirectory;

async function filesIn(entry: FileSystemEntry, wanted: (path: string) => boolean): Promise<IncomingFile[]> {
  const path = entry.fullPath.replace(/^\//, "");
  if (!wanted(path)) return [];
  if (isFile(entry)) return [{ path, file: await fileOf(entry) }];
  if (!isFolder(entry)) return [];
  const reader = entry.createReader();
  const files: IncomingFile[] = [];
  // A folder tells its content in parts, and an empty part ends it.
  for (;;) {
    const batch = await batchOf(reader);
    if (batch.length === 0) return files;
    for (const child of batch) files.push(...(await filesIn(child, wanted)));
  }
}

/** Has to be called while the drop is handled: afterwards the browser has forgotten what was dropped. */
export function filesDropped(transfer: DataTransfer, wanted: (path: string) => boolean): Promise<IncomingFile[]> {
  const entries = [...transfer.items].flatMap((item) => item.webkitGetAsEntry() ?? []);
  if (entries.length === 0) return Promise.resolve([...transfer.files].map((file) => ({ path: file.name, file })));
  return Promise.all(entries.map((entry) => filesIn(entry, wanted))).then((files) => files.flat());
}
