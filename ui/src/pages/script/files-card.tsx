/** The files of a script job: templates, chosen and dropped files, and the editor. */
import { useQuery } from "@tanstack/react-query";
import { FileCode, FilePlus, FileText, FolderUp, X } from "lucide-react";
import { lazy, Suspense, useId, useRef, useState } from "react";
import { type ScriptTemplate, templatesQuery } from "@/api/scripts";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { cn } from "@/components/class-names";
import { ConfirmDialog } from "@/components/dialog";
import { DropArea } from "@/uploads/file-input";
import { Select } from "@/components/input";
import { Loaded, Skeleton, SkeletonRows } from "@/components/loaded";
import { Notice } from "@/components/notice";
import { toast } from "@/components/toasts";
import { Field } from "@/forms/field";
import { bytesText, counted } from "@/text/numbers";
import type { Jump } from "./code-editor";
import { type Draft, startedOver, withFiles, withoutFile, withText, withWritten } from "./script-draft";
import { canStart, filesDropped, folderName, type IncomingFile, isIncluded, isText, readFile, type ScriptFile, sizeOf, withoutTop } from "./script-files";

const CodeEditor = lazy(() => import("./code-editor").then((module) => ({ default: module.CodeEditor })));

/** Data belongs into a dataset or a bucket; a job's folder is its programs and what is small. */
const MOST_BYTES = 20_000_000;

type FilesCardProps = {
  draft: Draft;
  onChange: (change: (draft: Draft) => Draft) => void;
  onTemplate: (template: ScriptTemplate) => void;
  marked: ReadonlySet<number>;
  jump: Jump | null;
  mistake: string | undefined;
};

export function FilesCard({ draft, onChange, onTemplate, marked, jump, mistake }: FilesCardProps) {
  const [failure, setFailure] = useState<string | null>(null);
  const [leaving, setLeaving] = useState(false);
  const mistakeId = useId();
  const active = draft.files.find((file) => file.path === draft.active);

  async function bring(incoming: IncomingFile[]) {
    const wanted = withoutTop(incoming).filter(({ path }) => isIncluded(path));
    const size = wanted.reduce((sum, { file }) => sum + file.size, 0);
    if (wanted.length === 0) return setFailure(incoming.length > 0 ? "The folder has no files to add. Hidden files and caches are skipped." : null);
    if (size > MOST_BYTES) return setFailure(`The files are too large: ${bytesText(size)}, limit ${bytesText(MOST_BYTES)}. Leave out data and weights. Use a dataset, or download them in the script.`);
    setFailure(null);
    const files = await Promise.all(wanted.map(readFile));
    const name = folderName(incoming);
    onChange((before) => ({ ...withFiles(before, files), name: before.name || name }));
    const behind = incoming.length - wanted.length;
    toast(`${counted(files.length, "file")} added.${behind > 0 ? ` ${counted(behind, "hidden or cached file")} skipped.` : ""}`);
  }

  return (
    <DropArea text="Drop files to add them" onDrop={(_, transfer) => void filesDropped(transfer, isIncluded).then(bring)}>
      <Card>
        <CardHeader title="Script" note={draft.files.length > 0 && `${counted(draft.files.length, "file")}, ${bytesText(draft.files.reduce((sum, file) => sum + sizeOf(file), 0))}`}>
          {draft.files.length > 0 && (
            <div className="flex flex-wrap gap-2">
              <BringFiles size="small" onBring={(incoming) => void bring(incoming)} />
              <Button size="small" onClick={() => setLeaving(true)}>
                Start over
              </Button>
            </div>
          )}
        </CardHeader>
        {(failure ?? mistake) && (
          <Notice id={mistakeId} tone="bad" role="alert" className="mb-3">
            {failure ?? mistake}
          </Notice>
        )}
        {draft.files.length === 0 ? (
          <FirstChoice onBring={(incoming) => void bring(incoming)} onWrite={() => onChange(withWritten)} onTemplate={onTemplate} />
        ) : (
          <>
            <FileList
              files={draft.files}
              active={draft.active}
              entry={draft.entry}
              onOpen={(path) => onChange((before) => ({ ...before, active: path }))}
              onRemove={(path) => onChange((before) => withoutFile(before, path))}
            />
            {active && isText(active) ? (
              <Suspense fallback={<Skeleton className="h-96 rounded-control lg:h-[30rem]" />}>
                <CodeEditor
                  key={active.path}
                  label={`Text of ${active.path}`}
                  text={active.text}
                  language={active.path.endsWith(".py") ? "python" : null}
                  marked={marked}
                  jump={jump}
                  describedBy={mistake ? mistakeId : undefined}
                  onChange={(text) => onChange((before) => withText(before, active.path, text))}
                />
              </Suspense>
            ) : (
              <p className="py-8 text-center text-sm text-dim">Choose a text file above to edit it.</p>
            )}
            <EntryChoice draft={draft} onChange={onChange} />
          </>
        )}
      </Card>
      <ConfirmDialog
        open={leaving}
        onOpenChange={setLeaving}
        title="Start over?"
        action="Remove all files"
        onConfirm={async () => onChange(startedOver)}
      >
        All files and your changes to them are removed from this page. The files on your disk stay unchanged.
      </ConfirmDialog>
    </DropArea>
  );
}

function EntryChoice({ draft, onChange }: Pick<FilesCardProps, "draft" | "onChange">) {
  const programs = draft.files.filter(canStart);
  if (programs.length < 2) return null;
  return (
    <Field label="Entry script" className="mt-3 sm:max-w-xs">
      {(control) => <Select {...control} value={draft.entry ?? ""} onChange={(event) => onChange((before) => ({ ...before, entry: event.target.value }))} options={programs.map(({ path }) => [path, path] as const)} />}
    </Field>
  );
}

/** React knows no `webkitdirectory`; every browser does. */
const WHOLE_FOLDER = { webkitdirectory: "" } as object;

type BringFilesProps = { onBring: (incoming: IncomingFile[]) => void; size?: "small" };

/** Two buttons that open the disk: for a folder with everything in it, or for single files. */
function BringFiles({ onBring, size }: BringFilesProps) {
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

type FirstChoiceProps = { onBring: (incoming: IncomingFile[]) => void; onWrite: () => void; onTemplate: (template: ScriptTemplate) => void };

/** An empty page: bring a folder, write something, or take a template. */
function FirstChoice({ onBring, onWrite, onTemplate }: FirstChoiceProps) {
  return (
    <div className="grid gap-5">
      <div className="grid justify-items-center gap-3 rounded-card border-2 border-dashed border-line-strong px-4 py-7 text-center">
        <p className="text-lg font-[560]">Drop a folder with your script here.</p>
        <p className="max-w-lg text-dim">Your script needs no changes for GPU Bloom: progress is read from its output, checkpoints from its files.</p>
        <div className="flex flex-wrap justify-center gap-2">
          <BringFiles onBring={onBring} />
          <Button onClick={onWrite}>
            <FileCode aria-hidden />
            Write or paste a script
          </Button>
        </div>
      </div>
      <TemplateList onTemplate={onTemplate} />
    </div>
  );
}

function TemplateList({ onTemplate }: { onTemplate: (template: ScriptTemplate) => void }) {
  const templates = useQuery(templatesQuery);
  return (
    <section aria-labelledby="templates">
      <h3 id="templates" className="mb-2 text-xs text-dim">
        Or start from a template. Each template runs without changes.
      </h3>
      <Loaded query={templates} skeleton={<SkeletonRows rows={3} className="h-16" />}>
        {(loaded) => (
          <ul className="grid gap-2 sm:grid-cols-2">
            {loaded.map((template) => (
              <li key={template.name} className="grid">
                <button
                  type="button"
                  onClick={() => onTemplate(template)}
                  className="flex flex-col justify-start rounded-control border border-line-strong px-3.5 py-2.5 text-left transition-colors duration-150 hover:border-violet-soft/50 hover:bg-white/4"
                >
                  <span className="block font-[570]">{template.title}</span>
                  <span className="mt-0.5 block text-xs text-dim">{template.description}</span>
                </button>
              </li>
            ))}
          </ul>
        )}
      </Loaded>
    </section>
  );
}

type FileListProps = { files: readonly ScriptFile[]; active: string | null; entry: string | null; onOpen: (path: string) => void; onRemove: (path: string) => void };

/** The files of the job. A text opens in the editor; others only travel along. */
function FileList({ files, active, entry, onOpen, onRemove }: FileListProps) {
  return (
    <ul aria-label="Files" className="mb-2.5 flex max-h-36 flex-wrap gap-1.5 overflow-y-auto p-0.5">
      {files.map((file) => (
        <li
          key={file.path}
          className={cn("inline-flex max-w-full items-center rounded-lg border text-xs", file.path === active ? "border-violet-bright bg-violet/15" : "border-line-strong")}
        >
          {isText(file) ? (
            <button type="button" aria-pressed={file.path === active} onClick={() => onOpen(file.path)} className="min-w-0 truncate rounded-l-lg py-1 pl-2.5 text-left hover:text-white max-sm:py-2">
              {file.path}
              {file.path === entry && <span className="ml-1.5 text-teal-soft">entry</span>}
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
