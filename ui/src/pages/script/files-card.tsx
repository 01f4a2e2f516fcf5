import { useId, useState } from "react";
import type { ScriptTemplate } from "@/api/ml-jobs";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/confirm-dialog";
import { Notice } from "@/components/notice";
import { Select } from "@/components/select";
import { toast } from "@/components/toasts";
import { Field } from "@/forms/field";
import { DropArea } from "@/pages/datasets/drop-area";
import { bytesText, counted } from "@/text/numbers";
import { BringFiles } from "./bring-files";
import { CodeEditor, type Jump } from "./code-editor";
import { filesDropped } from "./dropped-files";
import { FileList } from "./file-list";
import { FirstChoice } from "./first-choice";
import { type Draft, startedOver, withFiles, withText, withWritten, withoutFile } from "./script-draft";
import { type IncomingFile, canStart, folderName, isText, readFile, sizeOf, isIncluded, withoutTop } from "./script-files";

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
    if (wanted.length === 0) return setFailure(incoming.length > 0 ? "There is nothing to send in it: hidden files and caches stay behind." : null);
    if (size > MOST_BYTES) return setFailure(`${bytesText(size)} are too many for a job’s folder: it takes ${bytesText(MOST_BYTES)}. Leave out data and weights; a dataset or an address in the script brings them.`);
    setFailure(null);
    const files = await Promise.all(wanted.map(readFile));
    const name = folderName(incoming);
    onChange((before) => ({ ...withFiles(before, files), name: before.name || name }));
    const behind = incoming.length - wanted.length;
    toast(`${counted(files.length, "file")} added${behind > 0 ? `, ${behind} hidden or made anew left out` : ""}.`);
  }

  return (
    <DropArea text="Drop to add" onDrop={(_, transfer) => void filesDropped(transfer, isIncluded).then(bring)}>
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
              <CodeEditor
                key={active.path}
                label={`Text of ${active.path}`}
                text={active.text}
                coloured={active.path.endsWith(".py")}
                marked={marked}
                jump={jump}
                describedBy={mistake ? mistakeId : undefined}
                onChange={(text) => onChange((before) => withText(before, active.path, text))}
              />
            ) : (
              <p className="py-8 text-center text-sm text-dim">Choose a text above to see it.</p>
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
        The files on this page are removed from it, with what you changed in them. On your disk nothing happens.
      </ConfirmDialog>
    </DropArea>
  );
}

function EntryChoice({ draft, onChange }: Pick<FilesCardProps, "draft" | "onChange">) {
  const programs = draft.files.filter(canStart);
  if (programs.length < 2) return null;
  return (
    <Field label="The job starts with" className="mt-3 sm:max-w-xs">
      {(control) => <Select {...control} value={draft.entry ?? ""} onChange={(event) => onChange((before) => ({ ...before, entry: event.target.value }))} options={programs.map(({ path }) => [path, path] as const)} />}
    </Field>
  );
}
