import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { projectQuery } from "@/api/projects";
import type { Project } from "@/api/types";
import { Loaded } from "@/components/loaded";
import { NEW_PROJECT, STARTING_CONFIG, jobRules, startingValues } from "@/forms/job-rules";
import { PagePending } from "@/shell/page-pending";
import { ConfigTabs, JobCard, JobFrame } from "./job-frame";
import { NewJobCrumbs } from "./new-job-crumbs";
import { StructuredConfig } from "./structured-config";
import { useJobForm } from "./use-job-form";

const route = getRouteApi("/app/projects/$projectId/jobs/new");

export function NewJobInProjectPage() {
  const { projectId } = route.useParams();
  const project = useQuery(projectQuery(projectId));
  return (
    <Loaded query={project} skeleton={<PagePending />}>
      {(found) => <NewJob project={found} />}
    </Loaded>
  );
}

export const NewJobPage = () => <NewJob />;

function NewJob({ project }: { project?: Project }) {
  const job = useJobForm({ values: startingValues(project?.id ?? NEW_PROJECT), config: STARTING_CONFIG, rules: jobRules });
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
