import { useNavigate } from "@tanstack/react-router";
import { CloudDownload } from "lucide-react";
import { useState } from "react";
import { fetchDataset } from "@/api/datasets";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { toast } from "@/components/toasts";
import { ApiForm } from "@/forms/api-form";
import { hubDatasetId, shortText } from "@/forms/hub-rules";
import { TextField } from "@/forms/text-field";
import { useApiForm } from "@/forms/use-api-form";
import { z } from "@/forms/zod";
import { HubTokenNote } from "@/pages/models/hub-token-note";

const rules = z.object({ repository: hubDatasetId, config: shortText, split: shortText, revision: shortText });

export function HubDatasetButton() {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <CloudDownload aria-hidden />
        From the Hub
      </Button>
      <Dialog open={open} onOpenChange={setOpen} title="A dataset from the Hub" description="The server fetches it and looks at it like at a file of your own.">
        <HubDatasetForm onDone={() => setOpen(false)} />
      </Dialog>
    </>
  );
}

function HubDatasetForm({ onDone }: { onDone: () => void }) {
  const navigate = useNavigate();
  const { field, failure, isSubmitting, onSubmit } = useApiForm({
    schema: rules,
    defaultValues: { repository: "", config: "", split: "", revision: "" },
    submit: async (values) => {
      const dataset = await fetchDataset(values);
      onDone();
      toast(`“${dataset.name}” is being fetched.`);
      await navigate({ to: "/datasets/$datasetId", params: { datasetId: dataset.id } });
    },
  });
  return (
    <ApiForm label="A dataset from the Hub" failure={failure} onSubmit={onSubmit}>
      <TextField label="Id of the dataset" placeholder="tatsu-lab/alpaca" autoComplete="off" spellCheck={false} {...field("repository")} />
      <div className="grid gap-4 sm:grid-cols-3">
        <TextField label="Configuration" optional placeholder="default" autoComplete="off" spellCheck={false} {...field("config")} />
        <TextField label="Split" optional placeholder="train" autoComplete="off" spellCheck={false} {...field("split")} />
        <TextField label="Revision" optional placeholder="main" autoComplete="off" spellCheck={false} {...field("revision")} />
      </div>
      <HubTokenNote />
      <div className="flex justify-end gap-2">
        <Button onClick={onDone}>Cancel</Button>
        <Button type="submit" variant="primary" pending={isSubmitting}>
          Fetch it
        </Button>
      </div>
    </ApiForm>
  );
}
