import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { FileUp, SearchX } from "lucide-react";
import { datasetsQuery } from "@/api/datasets";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { PageSteps } from "@/components/page-steps";
import { SkeletonRows } from "@/components/skeleton";
import { SearchBox } from "@/pages/projects/search-box";
import { PageHeader } from "@/shell/page-header";
import { usePageTitle } from "@/shell/use-page-title";
import { sendDatasets } from "@/uploads/dataset-files";
import { ChooseFiles } from "./choose-files";
import { DatasetTable } from "./dataset-table";
import { DropArea } from "./drop-area";
import { HubDatasetButton } from "./hub-dataset-dialog";

const route = getRouteApi("/app/datasets");
const PAGE = 20;

export function DatasetsPage() {
  usePageTitle("Datasets");
  const { search = "", page = 1 } = route.useSearch();
  const navigate = useNavigate({ from: "/datasets" });
  const datasets = useQuery(datasetsQuery({ search, limit: PAGE, offset: (page - 1) * PAGE }));
  const nothingYet = datasets.data?.total === 0 && search === "";

  const onSearch = (text: string) => void navigate({ search: { search: text || undefined }, replace: true });
  const turn = (to: number) => void navigate({ search: (kept) => ({ ...kept, page: to > 1 ? to : undefined }) });

  async function send(files: File[]) {
    const begun = await sendDatasets(files);
    const [only] = begun;
    // One file is what somebody wants to look at next; several are a list.
    if (only && begun.length === 1) await navigate({ to: "/datasets/$datasetId", params: { datasetId: only.id } });
  }

  const actions = (
    <>
      <HubDatasetButton />
      <ChooseFiles text="Upload files" several variant="primary" onChoose={(files) => void send(files)} />
    </>
  );

  return (
    <DropArea onDrop={(files) => void send(files)}>
      <PageHeader title="Datasets">{!datasets.isPending && !nothingYet && actions}</PageHeader>
      <Card>
        {!nothingYet && <SearchBox label="Search datasets" text={search} onSearch={onSearch} busy={datasets.isPlaceholderData} />}
        <Loaded query={datasets} skeleton={<SkeletonRows rows={5} className="h-11" />}>
          {({ items, total }) => {
            if (nothingYet) {
              return (
                <div className="rounded-card border-2 border-dashed border-line-strong">
                  <EmptyState icon={FileUp} title="Drop a file of examples here." action={<div className="flex flex-wrap justify-center gap-2">{actions}</div>}>
                    .jsonl, .json, .csv, .tsv, .txt or .parquet, of any size. Chats, questions with answers, or plain text: the format is found out, and you see what a model would learn from each row.
                  </EmptyState>
                </div>
              );
            }
            if (items.length === 0) {
              return (
                <EmptyState
                  icon={SearchX}
                  title={search ? `No dataset matches “${search}”.` : "This page of the list is empty."}
                  action={<Button onClick={() => onSearch("")}>Show all datasets</Button>}
                />
              );
            }
            return (
              <>
                <DatasetTable datasets={items} />
                <PageSteps page={page} pageSize={PAGE} total={total} onTurn={turn} />
              </>
            );
          }}
        </Loaded>
      </Card>
    </DropArea>
  );
}
