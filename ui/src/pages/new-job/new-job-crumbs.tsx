import { Link } from "@tanstack/react-router";
import type { Project } from "@/api/types";

const look = "underline-offset-3 hover:text-text hover:underline";

export function NewJobCrumbs({ project }: { project?: Project }) {
  if (!project) {
    return (
      <>
        <Link to="/jobs" className={look}>
          Training jobs
        </Link>{" "}
        / New job
      </>
    );
  }
  return (
    <>
      <Link to="/projects" className={look}>
        Projects
      </Link>{" "}
      /{" "}
      <Link to="/projects/$projectId" params={{ projectId: project.id }} className={`${look} text-text`}>
        {project.name}
      </Link>{" "}
      / New job
    </>
  );
}
