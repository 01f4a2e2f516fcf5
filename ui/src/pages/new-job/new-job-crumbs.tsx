import { Link } from "@tanstack/react-router";
import type { Project } from "@/api/types";

const linkClass = "underline-offset-3 hover:text-text hover:underline";

export function NewJobCrumbs({ project }: { project?: Project }) {
  if (!project) {
    return (
      <>
        <Link to="/jobs" className={linkClass}>
          Training jobs
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
