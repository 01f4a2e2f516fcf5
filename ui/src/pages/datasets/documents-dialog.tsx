/** A dataset from documents: choose a folder, files or a .zip, and how long passages are. */
import { useNavigate } from "@tanstack/react-router";
import { FilePlus, FileText, FolderUp } from "lucide-react";
import { type ChangeEvent, useRef, useState } from "react";
import { NewDocuments } from "@/api/request-fields";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Notice } from "@/components/notice";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { numberRule, textRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { bytesText, counted } from "@/text/numbers";
import { type ChosenDocuments, DOCUMENT_SUFFIXES, NO_DOCUMENTS, readDocuments, sendDocuments } from "@/uploads/documents";

const { passage_characters: CHARACTERS, name: NAME } = NewDocuments;

export const DOCUMENT_LENGTH = numberRule(CHARACTERS).transform((value) => value ?? CHARACTERS.default);

const rules = z.object({ name: textRule(NAME).min(1, "Enter a name."), passage_characters: DOCUMENT_LENGTH });

export function DocumentsButton() {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <FileText aria-hidden />
        From documents
      </Button>
      <Dialog
        open={open}
        onOpenChange={setOpen}
        title="Make a dataset from documents"
        description="PDF, Word, Markdown, HTML and text become passages, one per row, each with its file and page or heading."
      >
        <DocumentsForm onDone={() => setOpen(false)} />
      </Dialog>
    </>
  );
}

/** React knows no `webkitdirectory`; every browser does. */
const WHOLE_FOLDER = { webkitdirectory: "" } as object;

function DocumentsForm({ onDone }: { onDone: () => void }) {
  const navigate = useNavigate();
  const [chosen, setChosen] = useState<ChosenDocuments>(NO_DOCUMENTS);
  const [missing, setMissing] = useState(false);
  const folder = useRef<HTMLInputElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const some = chosen.files.length > 0 || chosen.archive !== null;
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { name: "", passage_characters: "" },
    submit: async (values) => {
      if (!some) {
        setMissing(true);
        return;
      }
      const dataset = await sendDocuments(chosen, values);
      onDone();
      await navigate({ to: "/datasets/$datasetId", params: { datasetId: dataset.id } });
    },
  });

  function choose(event: ChangeEvent<HTMLInputElement>) {
    const found = readDocuments([...(event.target.files ?? [])]);
    event.target.value = "";
    setChosen(found);
    setMissing(found.files.length === 0 && found.archive === null);
    form.setValue("name", found.name, { shouldValidate: found.name !== "" });
  }

  return (
    <ApiForm label="Make a dataset from documents" failure={failure} onSubmit={onSubmit}>
      <input ref={folder} type="file" hidden aria-label="Choose a folder" {...WHOLE_FOLDER} onChange={choose} />
      <input ref={files} type="file" hidden multiple aria-label="Choose files" accept={[...DOCUMENT_SUFFIXES, ".zip"].join(",")} onChange={choose} />
      <div className="flex flex-wrap gap-2">
        <Button onClick={() => folder.current?.click()}>
          <FolderUp aria-hidden />
          Choose a folder
        </Button>
        <Button onClick={() => files.current?.click()}>
          <FilePlus aria-hidden />
          Choose files or a .zip
        </Button>
      </div>
      {some && <Chosen chosen={chosen} />}
      {missing && (
        <Notice tone="bad" role="alert">
          Choose documents first: {DOCUMENT_SUFFIXES.join(", ")} or a .zip of them.
        </Notice>
      )}
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Name" autoComplete="off" {...field("name")} />
        <TextField
          label="Passage length"
          inputMode="numeric"
          placeholder={String(CHARACTERS.default)}
          help="Most characters of a passage. Passages end between paragraphs or sentences."
          {...field("passage_characters")}
        />
      </div>
      <div className="flex justify-end gap-2">
        <Button onClick={onDone}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Upload documents
        </Button>
      </div>
    </ApiForm>
  );
}

function Chosen({ chosen: { files, archive, leftOut, size } }: { chosen: ChosenDocuments }) {
  return (
    <div role="status" className="rounded-control border border-line bg-rail px-3 py-2 text-sm">
      <p>{archive ? `${archive.name}, ${bytesText(size)}` : `${counted(files.length, "document")}, ${bytesText(size)}`}</p>
      {leftOut.length > 0 && (
        <p className="mt-0.5 wrap-anywhere text-dim">
          Left out, because they are empty or no documents: {leftOut.slice(0, 5).join(", ")}
          {leftOut.length > 5 && ` and ${leftOut.length - 5} more`}
        </p>
      )}
    </div>
  );
}
