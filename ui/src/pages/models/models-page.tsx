/** The models page: own models and the catalogue. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Package, RefreshCw, Sparkles, Trash2 } from "lucide-react";
import { useState } from "react";
import { checkModel, deleteModel, fetchModelAgain, modelsQuery } from "@/api/models";
import type { Model, ModelCheck } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/dialog";
import { ProgressBar } from "@/components/figures";
import { EmptyState, Loaded, Skeleton } from "@/components/loaded";
import { Badge } from "@/components/notice";
import { toast, toastFailure, useAction } from "@/components/toasts";
import { PageHeader, usePageTitle } from "@/shell/page";
import { bytesText, countText, parametersText } from "@/text/numbers";
import { continueModel, type Folder } from "@/uploads/chosen-files";
import { cancelUpload, useUploadOf } from "@/uploads/upload-store";
import { AddModelButton, ChooseFolder } from "./add-model-dialog";
import { CatalogueCard } from "./catalogue-card";
import { FindingsList } from "./findings-list";

export function ModelsPage() {
  usePageTitle("Models");
  const models = useQuery(modelsQuery);
  const own = models.data?.items ?? [];
  return (
    <>
      {/* Not before the list is there: a button that then moves would close the dialog it opened. */}
      <PageHeader title="Models">{own.length > 0 && <AddModelButton />}</PageHeader>
      <div className="grid gap-3.5">
        <Loaded query={models} skeleton={<Skeleton className="h-40 rounded-card" />}>
          {({ items }) => <OwnModels models={items} />}
        </Loaded>
        <CatalogueCard own={own} />
      </div>
    </>
  );
}

function OwnModels({ models }: { models: readonly Model[] }) {
  return (
    <Card aria-label="Your models">
      <CardHeader title="Your models" />
      {models.length === 0 ? (
        <EmptyState icon={Package} title="No models yet." action={<AddModelButton />}>
          Download a model from the catalogue below or any Hugging Face model by its ID, or add your own model files.
        </EmptyState>
      ) : (
        <ul className="grid gap-3">
          {models.map((model) => (
            <li key={model.id}>
              <ModelRow model={model} />
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function ModelRow({ model }: { model: Model }) {
  const { check } = model;
  const usable = model.status === "ready" && (check?.ok ?? true);
  const moving = model.status === "fetching" && model.progress !== null;
  return (
    <article aria-label={model.name} className="rounded-control border border-line px-3.5 py-3">
      <div className="flex flex-wrap items-start justify-between gap-x-4 gap-y-2.5">
        <div className="min-w-0 flex-1 basis-64">
          <h3 className="flex flex-wrap items-center gap-x-2.5 gap-y-1 font-[590]">
            <span className="min-w-0 wrap-anywhere">{model.name}</span>
            <ModelStatus model={model} check={check} />
          </h3>
          <p className="mt-0.5 text-sm wrap-anywhere text-dim">{facts(model, check).join(" · ")}</p>
        </div>
        <div className="flex flex-wrap gap-2">
          {model.status === "ready" && <CheckButton model={model} />}
          {model.status === "failed" && model.source === "hub" && <FetchAgainButton model={model} />}
          <DeleteButton model={model} />
          {usable && (
            <Button asChild size="small" variant="primary">
              <Link to="/finetune" search={{ model: model.id }} aria-label={`Fine-tune ${model.name}`}>
                <Sparkles aria-hidden />
                Fine-tune
              </Link>
            </Button>
          )}
        </div>
      </div>
      {moving && <ProgressBar value={model.progress} label={`Download of ${model.name}`} className="mt-2.5" />}
      {model.problem && <p className="mt-2 text-sm wrap-anywhere text-danger-soft">{model.problem}</p>}
      <Unfinished model={model} />
      {check && check.findings.length > 0 && (
        <div className="mt-2.5 border-t border-line pt-2.5">
          <FindingsList findings={check.findings} />
        </div>
      )}
    </article>
  );
}

function ModelStatus({ model: { id, status }, check }: { model: Model; check: ModelCheck | null }) {
  const upload = useUploadOf(id);
  if (status === "fetching") return <Badge tone="teal">downloading</Badge>;
  if (status === "uploading") return <Badge tone={upload ? "teal" : "bad"}>{upload ? "uploading" : "upload incomplete"}</Badge>;
  if (status === "failed") return <Badge tone="bad">failed</Badge>;
  if (check === null) return <Badge>ready</Badge>;
  return check.ok ? <Badge tone="good">can be trained</Badge> : <Badge tone="bad">cannot be trained</Badge>;
}

const SOURCES: Record<Model["source"], string> = { hub: "from Hugging Face", folder: "server folder", upload: "uploaded" };

function facts(model: Model, check: ModelCheck | null): string[] {
  return [
    check?.parameters && `${parametersText(check.parameters)} parameters`,
    check?.family,
    check?.context_length && `context length ${countText(check.context_length)}`,
    check?.chat_template && "chat template",
    model.size > 0 && bytesText(model.size),
    SOURCES[model.source],
    model.repository !== model.name && model.repository,
    model.revision && `revision ${model.revision.slice(0, 12)}`,
  ].filter((fact): fact is string => typeof fact === "string" && fact !== "");
}

/** The browser that sent it is gone; the files that arrived are not. */
function Unfinished({ model }: { model: Model }) {
  const upload = useUploadOf(model.id);
  if (model.status !== "uploading" || upload) return null;

  function go(folder: Folder) {
    if (folder.size === model.size) continueModel(model, folder);
    else toastFailure("This is not the folder of the interrupted upload: the file sizes differ. Choose the same folder, or remove this model and upload the folder again.");
  }

  return (
    <div className="mt-2.5 flex flex-wrap items-center gap-3 text-sm text-dim">
      The upload stopped after {bytesText(model.received)} of {bytesText(model.size)}. Choose the same folder again to continue.
      <ChooseFolder text="Resume upload" size="small" onChoose={go} />
    </div>
  );
}

function FetchAgainButton({ model }: { model: Model }) {
  const { pending, run } = useAction(async () => void (await fetchModelAgain(model.id)));

  return (
    <Button size="small" pending={pending} aria-label={`Download ${model.name} again`} onClick={run}>
      {!pending && <RefreshCw aria-hidden />}
      Download again
    </Button>
  );
}

function CheckButton({ model }: { model: Model }) {
  const { pending, run } = useAction(async () => {
    await checkModel(model.id);
    toast(`“${model.name}” was checked again.`);
  });

  return (
    <Button size="small" pending={pending} aria-label={`Check ${model.name} again`} onClick={run}>
      {!pending && <RefreshCw aria-hidden />}
      Check
    </Button>
  );
}

function DeleteButton({ model }: { model: Model }) {
  const [open, setOpen] = useState(false);
  const upload = useUploadOf(model.id);

  async function remove() {
    if (upload) await cancelUpload(upload.id);
    else await deleteModel(model.id);
    toast(`“${model.name}” was removed.`);
  }

  return (
    <>
      <Button size="small" aria-label={`Remove ${model.name}`} onClick={() => setOpen(true)}>
        <Trash2 aria-hidden />
        Remove
      </Button>
      <ConfirmDialog open={open} onOpenChange={setOpen} title={`Remove “${model.name}”?`} action="Remove model" onConfirm={remove}>
        {model.source === "folder" ? "The model is removed from this list. The folder on the server is not deleted." : "The model files are deleted from this server. Jobs that were trained on this model are kept, but cannot be resumed."}
      </ConfirmDialog>
    </>
  );
}
