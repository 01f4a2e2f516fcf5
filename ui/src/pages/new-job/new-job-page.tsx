import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { projectQuery } from "@/api/projects";
import type { Job, Project } from "@/api/types";
import { Loaded } from "@/components/loaded";
import { NEW_PROJECT, jobRules, startingValues } from "@/forms/job-rules";
import { likeJob } from "@/forms/like-job";
import { PagePending } from "@/shell/page-pending";
import { ConfigTabs, JobCard, JobFrame } from "./job-frame";
import { LikeAnother } from "./like-another";
import { NewJobCrumbs } from "./new-job-crumbs";
import { StructuredConfig } from "./structured-config";
import { useJobForm } from "./use-job-form";

const route = getRouteApi("/app/projects/$projectId/jobs/new");

export function NewJobInProjectPage() {
  const { projectId } = route.useParams();
  const { like } = route.useSearch();
  const project = useQuery(projectQuery(projectId));
  return (
    <Loaded query={project} skeleton={<PagePending />}>
      {(loaded) => <LikeAnother id={like}>{(job) => <NewJob project={loaded} like={job} />}</LikeAnother>}
    </Loaded>
  );
}

export const NewJobPage = () => <NewJob />;

function NewJob({ project, like }: { project?: Project; like?: Job }) {
  const start = like ? likeJob(like) : { config: {} };
  const job = useJobForm({ values: startingValues(project?.id ?? NEW_PROJECT, start), config: start.config, rules: jobRules });
  const chosen = job.values.project;
  const other = useQuery({ ...projectQuery(chosen), enabled: !project && chosen !== NEW_PROJECT });
  return (
    <JobFrame title="New training job" crumbs={<NewJobCrumbs project={project} />} projectId={project?.id} job={job}>
      <JobCard form={job.form} inProject={project !== undefined} usualName={project?.name ?? "the project’s name"} />
      <ConfigTabs job={job}>
        <StructuredConfig projectPath={(project ?? other.data)?.trainingDataPath ?? null} />
      </ConfigTabs>
    </JobFrame>
  );
}
