/** The header of the pages that start a job: breadcrumbs, links between the kinds of jobs, and the job to start from. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { jobQuery } from "@/api/jobs";
import type { Job, Project } from "@/api/types";
import { Loaded } from "@/components/loaded";
import { PagePending } from "@/shell/page";

const tabClass =
  "rounded-lg px-3.5 py-1.25 text-dim transition-colors duration-150 hover:text-text aria-[current=page]:bg-raised aria-[current=page]:text-white max-sm:px-2.5 max-sm:py-2 max-sm:text-sm";

/** Three ways to begin: with a model that has learned something, with none, or with a script of one's own. */
export function JobKindLinks({ projectId }: { projectId?: string }) {
  return (
    <nav aria-label="Type of job" className="mb-3.5 flex w-max gap-1 rounded-[10px] border border-line bg-rail p-[3px]">
      <Link to="/finetune" search={{ project: projectId }} activeOptions={{ includeSearch: false }} className={tabClass}>
        Fine-tune
      </Link>
      {projectId ? (
        <Link to="/projects/$projectId/jobs/new" params={{ projectId }} className={tabClass}>
          From scratch
        </Link>
      ) : (
        <Link to="/jobs/new" className={tabClass}>
          From scratch
        </Link>
      )}
      <Link to="/script" search={{ project: projectId }} activeOptions={{ includeSearch: false }} className={tabClass}>
        Script
      </Link>
    </nav>
  );
}

const linkClass = "underline-offset-3 hover:text-text hover:underline";

export function NewJobCrumbs({ project }: { project?: Project }) {
  if (!project) {
    return (
      <>
        <Link to="/runs" className={linkClass}>
          Runs
        </Link>{" "}
        / New job
      </>
    );
  }
  return (
    <>
      <Link to="/projects" className={linkClass}>
        Projects
      </Link>{" "}
      /{" "}
      <Link to="/projects/$projectId" params={{ projectId: project.id }} className={`${linkClass} text-text`}>
        {project.name}
      </Link>{" "}
      / New job
    </>
  );
}

/** Waits for the job that a form starts like, if there is one. */
export function LikeAnother({ id, children }: { id: string | undefined; children: (job?: Job) => ReactNode }) {
  const job = useQuery({ ...jobQuery(id ?? ""), enabled: id !== undefined });
  if (id === undefined) return children();
  return (
    <Loaded query={job} skeleton={<PagePending />}>
      {(loaded) => children(loaded)}
    </Loaded>
  );
}
