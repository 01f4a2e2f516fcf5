/** The catalogue of models: filters, and which models this machine can train. */
import { useQuery } from "@tanstack/react-query";
import { Check, Download, SearchX } from "lucide-react";
import { useState } from "react";
import { machinesQuery } from "@/api/jobs";
import { addModel, catalogueQuery } from "@/api/models";
import type { Catalogue, CatalogueModel, Machine, Method, Model } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { type Column, DataTable } from "@/components/data-table";
import { SearchBox, Select } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { Badge } from "@/components/notice";
import { toast, useAction } from "@/components/toasts";
import { bytesText, countText, parametersText } from "@/text/numbers";

const METHOD_NAMES: Record<Method, string> = { lora: "LoRA", qlora: "QLoRA", full: "full" };

/** The largest memory that a model could lie in: a GPU's, or the host's where there is none. */
export function availableMemory(machines: readonly Machine[]): { bytes: number; where: "GPU" | "host" } | null {
  const gpus = machines.flatMap((machine) => machine.gpu_memory_bytes);
  if (gpus.length > 0) return { bytes: Math.max(...gpus), where: "GPU" };
  if (machines.length === 0) return null;
  return { bytes: Math.max(...machines.map((machine) => machine.host_memory_bytes)), where: "host" };
}

type Narrowing = { text: string; family: string; fits: Method | ""; available: number | null };

type Listed = CatalogueModel & { family: string };

/** Models that match, in the catalogue's order; first those that everybody may download. */
export function narrowed(catalogue: Catalogue, { text, family, fits, available }: Narrowing): Listed[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return catalogue.families
    .flatMap(({ name, models }) => models.map((model) => ({ ...model, family: name })))
    .filter((model) => {
      const haystack = `${model.id} ${model.family} ${model.licence}`.toLowerCase();
      if (!words.every((word) => haystack.includes(word))) return false;
      if (family !== "" && model.family !== family) return false;
      return fits === "" || available === null || (model.memory[fits] ?? Infinity) <= available;
    })
    .toSorted((a, b) => Number(a.gated) - Number(b.gated));
}

const FITS = [
  ["", "Any size"],
  ["lora", "LoRA fits this machine"],
  ["qlora", "QLoRA fits this machine"],
  ["full", "Full fine-tuning fits this machine"],
] as const;

const AT_FIRST = 12;

/** Models that people usually start from, with what each method would need. */
export function CatalogueCard({ own }: { own: readonly Model[] }) {
  const catalogue = useQuery(catalogueQuery);
  return (
    <Card aria-label="Catalogue">
      <CardHeader title="Catalogue" note="common base models" />
      <Loaded query={catalogue} skeleton={<SkeletonRows rows={8} className="h-11" />}>
        {(loaded) => <CatalogueList catalogue={loaded} own={own} />}
      </Loaded>
    </Card>
  );
}

function CatalogueList({ catalogue, own }: { catalogue: Catalogue; own: readonly Model[] }) {
  const machines = useQuery(machinesQuery);
  const [text, setText] = useState("");
  const [family, setFamily] = useState("");
  const [fits, setFits] = useState<Method | "">("");
  const [all, setAll] = useState(false);
  const available = availableMemory(machines.data?.items ?? []);
  const models = narrowed(catalogue, { text, family, fits, available: available?.bytes ?? null });
  const visible = all ? models : models.slice(0, AT_FIRST);
  const families = [["", "All families"] as const, ...catalogue.families.map(({ name }) => [name, name] as const)];

  return (
    <>
      <div className="mb-3.5 flex flex-wrap gap-2.5 [&>div]:mb-0 [&>div]:max-sm:w-full">
        <SearchBox label="Search the catalogue" text={text} onSearch={setText} />
        <Select aria-label="Family" options={families} value={family} onChange={(event) => setFamily(event.target.value)} className="sm:w-40" />
        {available && <Select aria-label="Size" options={FITS} value={fits} onChange={(event) => setFits(event.target.value as Method | "")} className="sm:w-72" />}
      </div>
      {models.length === 0 ? (
        <EmptyState
          icon={SearchX}
          title="No model matches the filters."
          action={
            <Button
              onClick={() => {
                setText("");
                setFamily("");
                setFits("");
              }}
            >
              Show all models
            </Button>
          }
        >
          You can also download any other Hugging Face model by its ID.
        </EmptyState>
      ) : (
        <DataTable label="Catalogue" columns={columns(available?.bytes ?? null, own)} rows={visible} rowKey={({ id }) => id} />
      )}
      {visible.length < models.length && (
        <Button className="mt-3" onClick={() => setAll(true)}>
          Show all {models.length} models
        </Button>
      )}
      <p className="mt-3 text-xs text-faint">
        QLoRA, LoRA and Full show the minimum GPU memory for {catalogue.setting}.{available && ` This machine has ${bytesText(available.bytes)} of ${available.where} memory.`} The engine can also train larger models by keeping layers in host memory.
      </p>
    </>
  );
}

const columns = (available: number | null, own: readonly Model[]): Column<Listed>[] => [
  { header: "Model", lead: true, cell: (model) => <NameCell model={model} /> },
  { header: "Parameters", end: true, cell: (model) => <span className="font-[540]">{parametersText(model.parameters)}</span> },
  { header: "Context length", end: true, cell: (model) => countText(model.context_length) },
  ...(["qlora", "lora", "full"] as const).map((method) => ({
    header: METHOD_NAMES[method] === "full" ? "Full" : METHOD_NAMES[method],
    end: true,
    cell: (model: Listed) => <Need bytes={model.memory[method]} available={available} />,
  })),
  { header: "Action", end: true, quiet: true, cell: (model) => <DownloadButton model={model} own={own} /> },
];

function NameCell({ model }: { model: Listed }) {
  const [owner, name] = model.id.split("/");
  return (
    <div className="min-w-0">
      <span className="wrap-anywhere">
        <span className="text-dim">{owner}/</span>
        <span className="font-[570]">{name}</span>
      </span>
      <div className="mt-1 flex flex-wrap gap-1.5">
        <Badge>{model.licence}</Badge>
        {model.chat && <Badge tone="teal">chat</Badge>}
        {model.gated && <Badge tone="violet">gated</Badge>}
        {model.unsloth_id && <Badge title={model.unsloth_id}>Unsloth</Badge>}
      </div>
    </div>
  );
}

function Need({ bytes, available }: { bytes: number | undefined; available: number | null }) {
  if (bytes === undefined) return "–";
  const tooMuch = available !== null && bytes > available;
  return (
    <span className={tooMuch ? "text-faint" : undefined} title={tooMuch ? "Needs more memory than this machine has" : undefined}>
      {bytesText(bytes)}
      {tooMuch && <span className="sr-only">, more than this machine has</span>}
    </span>
  );
}

function DownloadButton({ model, own }: { model: Listed; own: readonly Model[] }) {
  const { pending, run } = useAction(async () => {
    const added = await addModel({ source: "hub", repository: model.id, revision: null });
    toast(`The server is downloading “${added.name}”.`);
  });
  const here = own.find(({ repository, status }) => repository === model.id && status !== "failed");
  if (here?.status === "ready") {
    return (
      <span className="inline-flex items-center gap-1.5 text-sm text-success-soft">
        <Check aria-hidden className="size-4" />
        Downloaded
      </span>
    );
  }
  if (here) return <span className="text-sm text-dim">Downloading</span>;

  return (
    <Button size="small" pending={pending} aria-label={`Download ${model.id}`} onClick={run}>
      {!pending && <Download aria-hidden />}
      Download
    </Button>
  );
}
