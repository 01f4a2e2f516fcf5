import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { FolderPlus, SearchX } from "lucide-react";
import { projectsQuery } from "@/api/projects";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { PageSteps } from "@/components/page-steps";
import { SkeletonRows } from "@/components/skeleton";
import { CreateProjectButton } from "@/forms/create-project-button";
import { PageHeader } from "@/shell/page-header";
import { usePageTitle } from "@/shell/use-page-title";
import { ProjectList } from "./project-list";
import { SearchBox } from "./search-box";

const route = getRouteApi("/app/projects");
const PAGE = 20;

export function ProjectsPage() {
  usePageTitle("Projects");
  const { search = "", page = 1 } = route.useSearch();
  const navigate = useNavigate({ from: "/projects" });
  const projects = useQuery(projectsQuery({ search, limit: PAGE, offset: (page - 1) * PAGE }));
  const nothingYet = projects.data?.total === 0 && search === "";

  const onSearch = (text: string) => void navigate({ search: { search: text || undefined }, replace: true });
  const turn = (to: number) => void navigate({ search: (kept) => ({ ...kept, page: to > 1 ? to : undefined }) });

  return (
    <>
      {/* Not before the list is there: a button that then moves would close the dialog it opened. */}
      <PageHeader title="Projects">{!projects.isPending && !nothingYet && <CreateProjectButton />}</PageHeader>
      <Card>
        {!nothingYet && <SearchBox label="Search projects" text={search} onSearch={onSearch} busy={projects.isPlaceholderData} />}
        <Loaded query={projects} skeleton={<SkeletonRows rows={5} className="h-11" />}>
          {({ items, total }) => {
            if (nothingYet) {
              return (
                <EmptyState
                  icon={FolderPlus}
                  title="No projects created yet. Click 'New Project' to start."
                  action={<CreateProjectButton />}
                >
                  A project holds a model and the training runs made with it.
                </EmptyState>
              );
            }
            if (items.length === 0) {
              return (
                <EmptyState
                  icon={SearchX}
                  title={search ? `No project matches “${search}”.` : "This page of the list is empty."}
                  action={<Button onClick={() => onSearch("")}>Show all projects</Button>}
                />
              );
            }
            return (
              <>
                <ProjectList projects={items} />
                <PageSteps page={page} pageSize={PAGE} total={total} onTurn={turn} />
              </>
            );
          }}
        </Loaded>
      </Card>
    </>
  );
}
