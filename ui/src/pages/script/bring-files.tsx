import { FilePlus, FolderUp } from "lucide-react";
import { useRef } from "react";
import { Button } from "@/components/button";
import type { IncomingFile } from "./script-files";

/** React knows no `webkitdirectory`; every browser does. */
const WHOLE_FOLDER = { webkitdirectory: "" } as object;

type BringFilesProps = { onBring: (incoming: IncomingFile[]) => void; size?: "small" };

/** Two buttons that open the disk: for a folder with everything in it, or for single files. */
export function BringFiles({ onBring, size }: BringFilesProps) {
  const folder = useRef<HTMLInputElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const take = (input: HTMLInputElement) => {
    onBring([...(input.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
    // The same file can be chosen twice in a row.
    input.value = "";
  };
  return (
    <>
      <input ref={folder} type="file" aria-label="Choose a folder" hidden {...WHOLE_FOLDER} onChange={(event) => take(event.target)} />
      <input ref={files} type="file" aria-label="Choose files" hidden multiple onChange={(event) => take(event.target)} />
      <Button size={size} onClick={() => folder.current?.click()}>
        <FolderUp aria-hidden />
        Choose a folder
      </Button>
      <Button size={size} onClick={() => files.current?.click()}>
        <FilePlus aria-hidden />
        Choose files
      </Button>
    </>
  );
}
