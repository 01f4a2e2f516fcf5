import { useQuery } from "@tanstack/react-query";
import { modelsQuery } from "@/api/models";
import { Loaded } from "@/components/loaded";
import { Skeleton } from "@/components/skeleton";
import { PageHeader } from "@/shell/page-header";
import { usePageTitle } from "@/shell/use-page-title";
import { AddModelButton } from "./add-model-dialog";
import { CatalogueCard } from "./catalogue-card";
import { OwnModels } from "./own-models";

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
