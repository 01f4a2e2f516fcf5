import { FileText, X } from "lucide-react";
import { cn } from "@/components/class-names";
import { bytesText } from "@/text/numbers";
import { type ScriptFile, isText, sizeOf } from "./script-files";

type FileListProps = { files: readonly ScriptFile[]; active: string | null; entry: string | null; onOpen: (path: string) => void; onRemove: (path: string) => void };

/** The files of the job. A text opens in the editor; others only travel along. */
export function FileList({ files, active, entry, onOpen, onRemove }: FileListProps) {
  return (
    <ul aria-label="Files" className="mb-2.5 flex max-h-36 flex-wrap gap-1.5 overflow-y-auto p-0.5">
      {files.map((file) => (
        <li
          key={file.path}
          className={cn("inline-flex max-w-full items-center rounded-lg border text-xs", file.path === active ? "border-violet-bright bg-violet/15" : "border-line-strong")}
        >
          {isText(file) ? (
            <button type="button" aria-pressed={file.path === active} onClick={() => onOpen(file.path)} className="min-w-0 truncate rounded-l-lg py-1 pl-2.5 text-left max-sm:py-2">
              {file.path}
              {file.path === entry && <span className="ml-1.5 text-teal-soft">starts</span>}
            </button>
          ) : (
            <span className="inline-flex min-w-0 items-center gap-1.5 py-1 pl-2.5 text-dim max-sm:py-2">
              <FileText aria-hidden className="size-3.5 shrink-0" />
              <span className="truncate">{file.path}</span>
              <span className="shrink-0">{bytesText(sizeOf(file))}</span>
            </span>
          )}
          <button type="button" aria-label={`Remove ${file.path}`} onClick={() => onRemove(file.path)} className="grid size-6 shrink-0 place-items-center rounded-r-lg text-dim hover:text-text max-sm:size-9">
            <X aria-hidden className="size-3.5" />
          </button>
        </li>
      ))}
    </ul>
  );
}
