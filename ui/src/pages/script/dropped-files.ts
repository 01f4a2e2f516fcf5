/** Everything that was dropped, folders with all that is in them. */
import type { IncomingFile } from "./script-files";

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
