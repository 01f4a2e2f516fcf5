import { Link, useNavigate } from "@tanstack/react-router";
import { Download, Pencil, Sparkles, Trash2 } from "lucide-react";
import { useState } from "react";
import { changeDataset, convertedAddress, deleteDataset } from "@/api/datasets";
import type { Dataset } from "@/api/types";
import { Button } from "@/components/button";
import { ConfirmDialog } from "@/components/confirm-dialog";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm } from "@/forms/api-form";
import { TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { cancelUpload, useUploadOf } from "@/uploads/upload-store";

export function DatasetActions({ dataset, usable }: { dataset: Dataset; usable: boolean }) {
  return (
    <>
      <RenameButton dataset={dataset} />
      <DeleteDatasetButton dataset={dataset} />
      {usable && (
        <>
          <Button asChild>
            <a href={convertedAddress(dataset.id)} download title="Every usable row as messages, one JSON object per line">
              <Download aria-hidden />
              As messages
            </a>
          </Button>
          <Button asChild variant="primary">
            <Link to="/finetune" search={{ dataset: dataset.id }}>
              <Sparkles aria-hidden />
              Fine-tune with this
            </Link>
          </Button>
        </>
      )}
    </>
  );
}

const rules = z.object({ name: z.string().trim().min(1, "Give it a name.").max(120, "A name can have at most 120 characters.") });

function RenameButton({ dataset }: { dataset: Dataset }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <Pencil aria-hidden />
        Rename
      </Button>
      <Dialog open={open} onOpenChange={setOpen} title="Rename the dataset" className="max-w-sm">
        <RenameForm dataset={dataset} onDone={() => setOpen(false)} />
      </Dialog>
    </>
  );
}

function RenameForm({ dataset, onDone }: { dataset: Dataset; onDone: () => void }) {
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { name: dataset.name },
    submit: async ({ name }) => {
      await changeDataset(dataset.id, { name });
      onDone();
    },
  });
  return (
    <ApiForm label="Rename the dataset" failure={failure} onSubmit={onSubmit}>
      <TextField label="Name" autoComplete="off" {...field("name")} />
      <div className="flex justify-end gap-2">
        <Button onClick={onDone}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Rename
        </Button>
      </div>
    </ApiForm>
  );
}

function DeleteDatasetButton({ dataset }: { dataset: Dataset }) {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  const upload = useUploadOf(dataset.id);

  async function remove() {
    // Cancelling an upload removes what has arrived of it.
    if (upload) await cancelUpload(upload.id);
    else await deleteDataset(dataset.id);
    toast(`Dataset “${dataset.name}” deleted.`);
    await navigate({ to: "/datasets" });
  }

  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <Trash2 aria-hidden />
        Delete
      </Button>
      <ConfirmDialog open={open} onOpenChange={setOpen} title={`Delete “${dataset.name}”?`} action="Delete dataset" onConfirm={remove}>
        The file is removed from this server for good. Jobs that were trained on it stay.
      </ConfirmDialog>
    </>
  );
}
