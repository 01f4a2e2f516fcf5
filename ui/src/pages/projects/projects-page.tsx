/** The list of projects. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { FolderPlus, SearchX } from "lucide-react";
import { projectsQuery } from "@/api/projects";
import type { Project } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { type Column, DataTable, PageSteps } from "@/components/data-table";
import { SearchBox } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { TimeAgo } from "@/components/time-ago";
import { architectureName, CreateProjectButton } from "@/forms/project-form";
import { PageHeader, usePageTitle } from "@/shell/page";
import { modelSizeText } from "@/text/numbers";

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
                  A project groups the training jobs of one model.
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

const columns: Column<Project>[] = [
  { header: "Name", lead: true, cell: (project) => <ProjectListItem project={project} /> },
  { header: "Architecture", cell: (project) => architectureName(project.modelArchitecture) },
  { header: "Model size", end: true, cell: (project) => <span className="font-[540]">{modelSizeText(project.modelSize)}</span> },
  {
    header: "Training data",
    cell: ({ trainingDataPath: path }) =>
      path && (
        <span className="line-clamp-1 max-w-72 font-mono text-xs break-all text-dim" title={path}>
          {path}
        </span>
      ),
  },
  { header: "Updated", end: true, cell: (project) => <span className="text-dim"><TimeAgo at={project.updatedAt} /></span> },
];

function ProjectList({ projects }: { projects: Project[] }) {
  return <DataTable label="Projects" columns={columns} rows={projects} rowKey={(project) => project.id} />;
}

function ProjectListItem({ project }: { project: Project }) {
  return (
    <div className="min-w-0 md:max-w-md">
      <Link
        to="/projects/$projectId"
        params={{ projectId: project.id }}
        className="font-[570] wrap-anywhere underline-offset-3 hover:text-violet-soft hover:underline"
      >
        {project.name}
      </Link>
      {project.description && <p className="line-clamp-1 text-sm break-all text-dim">{project.description}</p>}
    </div>
  );
}
