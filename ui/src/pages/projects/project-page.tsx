/** One project: its details and its training jobs. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Activity, FolderX, Trash2 } from "lucide-react";
import { type ReactNode, useState } from "react";
import { jobsQuery } from "@/api/jobs";
import { isGone } from "@/api/problem";
import { deleteProject, projectQuery } from "@/api/projects";
import type { Project } from "@/api/types";
import { Button } from "@/components/button";
import { Card, CardHeader } from "@/components/card";
import { ConfirmDialog } from "@/components/dialog";
import { EmptyState, Loaded, Skeleton, SkeletonRows } from "@/components/loaded";
import { TimeAgo } from "@/components/time-ago";
import { toast } from "@/components/toasts";
import { datasetIdOf } from "@/forms/job-form";
import { architectureName, EditProjectButton } from "@/forms/project-form";
import { DatasetNote } from "@/forms/training-data-field";
import { JobTable } from "@/pages/jobs/job-table";
import { NewJobLink } from "@/pages/jobs/new-job-link";
import { AlertsCard } from "@/pages/settings/alerts-card";
import { SecretsCard } from "@/pages/settings/secrets-card";
import { PageHeader, usePageTitle } from "@/shell/page";
import { ItemNotFound } from "@/shell/page-error";
import { modelSizeText } from "@/text/numbers";
import { ProjectPlanCard } from "./project-plan";

const route = getRouteApi("/app/projects/$projectId");

export function ProjectPage() {
  const { projectId } = route.useParams();
  const project = useQuery(projectQuery(projectId));
  usePageTitle(project.data?.name ?? "Project");

  if (isGone(project.error)) {
    return (
      <ItemNotFound icon={FolderX} title="There is no project at this address." link={<Link to="/projects">Show all projects</Link>}>
        The project was deleted, or it belongs to another user.
      </ItemNotFound>
    );
  }
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
      <div className="grid items-start gap-3.5 lg:grid-cols-12">
        <div className="lg:col-span-8">
          <TrainingJobsCard projectId={project.id} />
        </div>
        <div className="grid content-start gap-3.5 lg:col-span-4">
          <ProjectDetailsCard project={project} />
          {project.modelPreset && project.modelArchitecture === "transformer" && <ProjectPlanCard project={project} />}
          <SecretsCard projectId={project.id} />
          <AlertsCard projectId={project.id} />
        </div>
      </div>
    </>
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

function Line({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="flex flex-wrap items-baseline justify-between gap-x-4 gap-y-0.5">
      <dt className="text-dim">{name}</dt>
      <dd className="min-w-0 font-[520]">{children}</dd>
    </div>
  );
}

function ProjectDetailsCard({ project }: { project: Project }) {
  return (
    <Card>
      <CardHeader title="Details" />
      <dl className="grid gap-2 text-sm">
        <Line name="Architecture">{architectureName(project.modelArchitecture)}</Line>
        <Line name="Model size">{project.modelSize === null ? "–" : `${modelSizeText(project.modelSize)} parameters`}</Line>
        {project.modelPreset && project.modelArchitecture === "transformer" && <Line name="Preset">{project.modelPreset.label}</Line>}
        <Line name="Training data">
          {datasetIdOf(project.trainingDataPath) ? (
            <span className="font-[420]">
              <DatasetNote id={datasetIdOf(project.trainingDataPath) ?? ""} />
            </span>
          ) : project.trainingDataPath ? (
            <span className="font-mono text-xs break-all">{project.trainingDataPath}</span>
          ) : (
            <span className="font-[420] text-dim">not set</span>
          )}
        </Line>
        <Line name="Created">
          <TimeAgo at={project.createdAt} />
        </Line>
        <Line name="Updated">
          <TimeAgo at={project.updatedAt} />
        </Line>
      </dl>
    </Card>
  );
}

const PAGE_SIZE = 10;

function TrainingJobsCard({ projectId }: { projectId: string }) {
  const jobs = useQuery(jobsQuery({ project_id: projectId, limit: PAGE_SIZE }));
  const more = (jobs.data?.total ?? 0) > PAGE_SIZE;
  return (
    <Card>
      <CardHeader title="Training jobs">
        {more && (
          <Link to="/runs" search={{ query: `project_id = ${projectId}` }} className="text-sm text-violet-soft underline-offset-3 hover:underline">
            All {jobs.data?.total} jobs
          </Link>
        )}
      </CardHeader>
      <Loaded query={jobs} skeleton={<SkeletonRows rows={4} />}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState icon={Activity} title="No training jobs yet." action={<NewJobLink projectId={projectId} />}>
              A job trains a model on the data of this project. You can watch its metrics live.
            </EmptyState>
          ) : (
            <JobTable label="Training jobs" jobs={items} withProject={false} />
          )
        }
      </Loaded>
    </Card>
  );
}

function DeleteProjectButton({ project }: { project: Project }) {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  return (
    <>
      <Button onClick={() => setOpen(true)}>
        <Trash2 aria-hidden />
        Delete
      </Button>
      <ConfirmDialog
        open={open}
        onOpenChange={setOpen}
        title={`Delete “${project.name}”?`}
        action="Delete project"
        onConfirm={async () => {
          await deleteProject(project.id);
          toast(`Project “${project.name}” deleted.`);
          await navigate({ to: "/projects" });
        }}
      >
        This permanently deletes the project from this server. The training data at its path is not deleted.
      </ConfirmDialog>
    </>
  );
}
