/**
 * A .zip archive of chosen files, stored without compression: a folder is sent as one resumable upload.
 *
 * Written by hand because storing needs no library: the archive refers to the files and copies none of them, so a folder
 * of gigabytes takes no memory. Each file is read once, for its checksum.
 */

export type Packed = { path: string; file: Blob };

/** What the format without its 64-bit extension can hold. */
const LARGEST_ZIP = 0xffff_ffff;
const MOST_FILES = 0xffff;
const UTF8_NAMES = 0x0800;
/** The first day that the format knows. The same files make the same archive, so that an upload can go on. */
const DATE = (1 << 5) | 1;

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb8_8320 : value >>> 1;
  return value;
});

const PIECE = 4 * 1024 * 1024;

async function checksum(file: Blob): Promise<number> {
  let sum = 0xffff_ffff;
  for (let offset = 0; offset < file.size; offset += PIECE) {
    const bytes = new Uint8Array(await file.slice(offset, offset + PIECE).arrayBuffer());
    for (const byte of bytes) sum = (TABLE[(sum ^ byte) & 0xff] ?? 0) ^ (sum >>> 8);
  }
  return (sum ^ 0xffff_ffff) >>> 0;
}

/** Fields of two and four bytes, the lowest byte first. */
function header(fields: readonly (readonly [bytes: 2 | 4, value: number])[]): Uint8Array<ArrayBuffer> {
  const view = new DataView(new ArrayBuffer(fields.reduce((sum, [bytes]) => sum + bytes, 0)));
  let at = 0;
  for (const [bytes, value] of fields) {
    if (bytes === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += bytes;
  }
  return new Uint8Array(view.buffer);
}

export async function zipFiles(files: readonly Packed[]): Promise<Blob> {
  if (files.length > MOST_FILES) throw new RangeError(`An archive holds at most ${MOST_FILES.toLocaleString("en-GB")} files.`);
  const parts: BlobPart[] = [];
  const directory: BlobPart[] = [];
  let offset = 0;
  let directorySize = 0;
  for (const { path, file } of files) {
    const name = new TextEncoder().encode(path);
    const sum = await checksum(file);
    const facts = [[2, 20], [2, UTF8_NAMES], [2, 0], [2, 0], [2, DATE], [4, sum], [4, file.size], [4, file.size], [2, name.length], [2, 0]] as const;
    const local = header([[4, 0x0403_4b50], ...facts]);
    parts.push(local, name, file);
    const entry = header([[4, 0x0201_4b50], [2, 20], ...facts, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]]);
    directory.push(entry, name);
    directorySize += entry.length + name.length;
    offset += local.length + name.length + file.size;
    if (offset + directorySize > LARGEST_ZIP) throw new RangeError("The files have more than 4 GB together. Send them in several parts.");
  }
  const end = header([[4, 0x0605_4b50], [2, 0], [2, 0], [2, files.length], [2, files.length], [4, directorySize], [4, offset], [2, 0]]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}
