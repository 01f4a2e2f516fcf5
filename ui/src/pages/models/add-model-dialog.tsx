/** Adding a model: from Hugging Face, from a folder on the server, or by upload. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { FolderUp, Plus } from "lucide-react";
import { useRef, useState } from "react";
import { serverQuery } from "@/api/account";
import { addModel, hubTokenQuery } from "@/api/models";
import { NewModel } from "@/api/request-fields";
import type { Model } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Notice } from "@/components/notice";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { toast } from "@/components/toasts";
import { ApiForm, useApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/field";
import { hubModelId, textOrNull, textRule } from "@/forms/rules";
import { z } from "@/forms/zod";
import { bytesText, counted } from "@/text/numbers";
import { type Folder, folderMistake, readFolder, sendModel } from "@/uploads/chosen-files";

/** React knows no `webkitdirectory`; every browser does. */
const WHOLE_FOLDER = { webkitdirectory: "" } as object;

type ChooseFolderProps = { onChoose: (folder: Folder) => void; text: string; size?: "small" };

export function ChooseFolder({ onChoose, text, size }: ChooseFolderProps) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        aria-label={text}
        hidden
        {...WHOLE_FOLDER}
        onChange={(event) => {
          onChoose(readFolder([...(event.target.files ?? [])]));
          event.target.value = "";
        }}
      />
      <Button size={size} onClick={() => input.current?.click()}>
        <FolderUp aria-hidden />
        {text}
      </Button>
    </>
  );
}

/** Says whether what is private or gated can be fetched. */
export function HubTokenNote() {
  const token = useQuery(hubTokenQuery);
  if (!token.data) return null;
  return (
    <p className="text-xs text-faint">
      {token.data.present ? "Your Hugging Face token is used for the download. " : "Private and gated repositories need your Hugging Face token. "}
      <Link to="/settings" search={{ tab: "tokens" }} className="text-violet-soft underline underline-offset-2">
        {token.data.present ? "Change the token in the settings" : "Add a token in the settings"}
      </Link>
    </p>
  );
}

type AddModelButtonProps = { variant?: "primary" | "outline" | "ghost"; size?: "label"; onAdded?: (model: Model) => void };

export function AddModelButton({ variant = "primary", size, onAdded }: AddModelButtonProps) {
  const [open, setOpen] = useState(false);
  const done = (model: Model) => {
    setOpen(false);
    onAdded?.(model);
  };
  return (
    <>
      <Button variant={variant} size={size} onClick={() => setOpen(true)}>
        <Plus aria-hidden />
        Add a model
      </Button>
      <Dialog open={open} onOpenChange={setOpen} title="Add a model" description="Supported: Hugging Face models with safetensors weights. Code in a model repository is never executed.">
        <Tabs defaultValue="hub">
          <TabList aria-label="Source of the model">
            <Tab value="hub">Hugging Face</Tab>
            <Tab value="upload">Upload</Tab>
            <Tab value="folder">Server folder</Tab>
          </TabList>
          <TabPanel value="hub" tabIndex={-1} keepMounted>
            <HubForm onDone={done} />
          </TabPanel>
          <TabPanel value="upload" tabIndex={-1} keepMounted>
            <UploadForm onDone={done} />
          </TabPanel>
          <TabPanel value="folder" tabIndex={-1} keepMounted>
            <FolderForm onDone={done} />
          </TabPanel>
        </Tabs>
      </Dialog>
    </>
  );
}

type FormProps = { onDone: (model: Model) => void };

const hubRules = z.object({ repository: hubModelId, revision: textOrNull(NewModel.revision) });

function HubForm({ onDone }: FormProps) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: hubRules,
    defaultValues: { repository: "", revision: "" },
    submit: async (values) => {
      const model = await addModel({ source: "hub", ...values });
      toast(`The server is downloading “${model.name}”.`);
      onDone(model);
    },
  });
  return (
    <ApiForm label="Download a model from Hugging Face" failure={failure} onSubmit={onSubmit}>
      <TextField label="Model ID" placeholder="Qwen/Qwen2.5-0.5B-Instruct" autoComplete="off" spellCheck={false} {...field("repository")} />
      <TextField label="Revision" optional placeholder="main" autoComplete="off" spellCheck={false} {...field("revision")} />
      <HubTokenNote />
      <Button type="submit" variant="primary" pending={isSubmitting} className="justify-self-end">
        Download
      </Button>
    </ApiForm>
  );
}

const folderRules = z.object({ path: textRule(NewModel.path).min(1, "Enter the path of the folder."), name: textOrNull(NewModel.name) });

function FolderForm({ onDone }: FormProps) {
  const server = useQuery(serverQuery);
  const folders = server.data?.data_roots ?? [];
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: folderRules,
    defaultValues: { path: "", name: "" },
    submit: async (values) => {
      const model = await addModel({ source: "folder", ...values });
      toast(`“${model.name}” was added.`);
      onDone(model);
    },
  });
  return (
    <ApiForm label="Add a model from a server folder" failure={failure} onSubmit={onSubmit}>
      <TextField
        label="Folder"
        placeholder="/data/models/my-model"
        autoComplete="off"
        spellCheck={false}
        help={folders.length === 0 ? "The folder must be inside a directory that the operator of this server allows." : `The folder must be inside ${folders.join(" or ")}. The files are not copied.`}
        {...field("path")}
      />
      <TextField label="Name" optional placeholder="name of the folder" autoComplete="off" {...field("name")} />
      <Button type="submit" variant="primary" pending={isSubmitting} className="justify-self-end">
        Add model
      </Button>
    </ApiForm>
  );
}

const uploadRules = z.object({ name: textRule(NewModel.name).min(1, "Enter a name.") });

function UploadForm({ onDone }: FormProps) {
  const [folder, setFolder] = useState<Folder | null>(null);
  const mistake = folder && folderMistake(folder);
  const { form, field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: uploadRules,
    defaultValues: { name: "" },
    submit: async ({ name }) => {
      if (!folder || mistake) return;
      onDone(await sendModel(folder, name));
    },
  });

  function choose(chosen: Folder) {
    setFolder(chosen);
    if (form.getValues("name") === "") form.setValue("name", chosen.name);
  }

  return (
    <ApiForm label="Upload a model" failure={failure} onSubmit={onSubmit}>
      <div className="grid justify-items-start gap-2">
        <ChooseFolder text={folder ? "Choose another folder" : "Choose a folder"} onChoose={choose} />
        {folder && !mistake && (
          <p className="text-sm text-dim">
            {counted(folder.files.length, "file")}, {bytesText(folder.size)}.
            {folder.leftOut.length > 0 && ` ${counted(folder.leftOut.length, "other file")} will not be uploaded.`}
          </p>
        )}
      </div>
      {mistake && (
        <Notice tone="bad" role="alert">
          {mistake}
        </Notice>
      )}
      <TextField label="Name" autoComplete="off" {...field("name")} />
      <Button type="submit" variant="primary" pending={isSubmitting} disabled={!folder || mistake !== null} className="justify-self-end">
        Upload model
      </Button>
    </ApiForm>
  );
}
