import { useQuery } from "@tanstack/react-query";
import { Link, getRouteApi } from "@tanstack/react-router";
import { FolderX } from "lucide-react";
import { ApiProblem } from "@/api/problem";
import { projectQuery } from "@/api/projects";
import type { Project } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { EmptyState } from "@/components/empty-state";
import { Loaded } from "@/components/loaded";
import { Skeleton } from "@/components/skeleton";
import { NewJobLink } from "@/pages/jobs/new-job-link";
import { PageHeader } from "@/shell/page-header";
import { usePageTitle } from "@/shell/use-page-title";
import { DeleteProjectButton } from "./delete-project-button";
import { EditProjectButton } from "./edit-project-button";
import { ProjectDetailsCard } from "./project-details-card";
import { TrainingJobsCard } from "./training-jobs-card";

const route = getRouteApi("/app/projects/$projectId");

export function ProjectPage() {
  const { projectId } = route.useParams();
  const project = useQuery(projectQuery(projectId));
  usePageTitle(project.data?.name ?? "Project");

  if (project.error instanceof ApiProblem && project.error.status === 404) return <ProjectMissing />;
  return (
    <Loaded query={project} skeleton={<ProjectSkeleton />}>
      {(loaded) => <LoadedProject project={loaded} />}
    </Loaded>
  );
}

function LoadedProject({ project }: { project: Project }) {
  const crumbs = (
    <>
      <Link to="/projects" className="underline-offset-3 hover:text-text hover:underline">
        Projects
      </Link>{" "}
      / <span className="text-text">{project.name}</span>
    </>
  );
  return (
    <>
      <PageHeader title={project.name} crumbs={crumbs} note={project.description}>
        <EditProjectButton project={project} />
        <DeleteProjectButton project={project} />
        <NewJobLink projectId={project.id} />
      </PageHeader>
      <div className="grid gap-3.5 lg:grid-cols-12">
        <div className="lg:col-span-8">
          <TrainingJobsCard projectId={project.id} />
        </div>
        <div className="lg:col-span-4">
          <ProjectDetailsCard project={project} />
        </div>
      </div>
    </>
  );
}

function ProjectMissing() {
  return (
    <Card>
      <EmptyState
        wholePage
        icon={FolderX}
        title="There is no project at this address."
        action={
          <Button asChild variant="primary">
            <Link to="/projects">Show all projects</Link>
          </Button>
        }
      >
        It was deleted, or it belongs to somebody else.
      </EmptyState>
    </Card>
  );
}

function ProjectSkeleton() {
  return (
    <>
      <Skeleton className="mb-2 h-4 w-36" />
      <Skeleton className="mb-5 h-7 w-64" />
      <div className="grid gap-3.5 lg:grid-cols-12">
        <Skeleton className="h-60 rounded-card lg:col-span-8" />
        <Skeleton className="h-60 rounded-card lg:col-span-4" />
      </div>
    </>
  );
}
