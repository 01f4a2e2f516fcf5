import { execFileSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { zipFiles } from "./zip";

it("packs files so that another program reads them with their names and checksums", async () => {
  const archive = await zipFiles([
    { path: "manual/Prüfung.md", file: new Blob(["# Pumps\n"]) },
    { path: "empty.txt", file: new Blob([]) },
    { path: "large.txt", file: new Blob(["0123456789".repeat(500_000)]) },
  ]);
  const path = join(mkdtempSync(join(tmpdir(), "zip-")), "packed.zip");
  writeFileSync(path, new Uint8Array(await archive.arrayBuffer()));
  const program = "import json, sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); print(json.dumps([z.testzip(), [[i.filename, i.file_size] for i in z.infolist()], z.read('manual/Prüfung.md').decode()]))";
  const said: unknown = JSON.parse(execFileSync("python3", ["-c", program, path]).toString());
  expect(said).toEqual([
    null,
    [
      ["manual/Prüfung.md", 8],
      ["empty.txt", 0],
      ["large.txt", 5_000_000],
    ],
    "# Pumps\n",
  ]);
});

it("makes the same archive of the same files, so that an upload can go on", async () => {
  const files = [{ path: "a.txt", file: new Blob(["text"]) }];
  const [first, second] = await Promise.all([zipFiles(files), zipFiles(files)]);
  expect(await first.text()).toBe(await second.text());
});
