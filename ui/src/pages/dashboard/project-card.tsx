import { Link } from "@tanstack/react-router";
import type { Project } from "@/api/types";
import { Badge } from "@/components/badge";
import { TimeAgo } from "@/components/time-ago";
import { architectureName } from "@/pages/projects/architecture-name";
import { modelSizeText } from "@/text/model-size";

export function ProjectCard({ project }: { project: Project }) {
  return (
    <Link
      to="/projects/$projectId"
      params={{ projectId: project.id }}
      className="flex min-w-0 flex-col rounded-card border border-line bg-card px-4 py-3.5 transition-colors duration-150 hover:border-violet-soft/40 hover:bg-[#2a3547]"
    >
      <div className="flex items-baseline justify-between gap-3">
        <span className="min-w-0 truncate text-lg font-[590]">{project.name}</span>
        <span className="shrink-0 text-lg font-[600] tracking-[-0.01em]">{modelSizeText(project.modelSize)}</span>
      </div>
      <p className="mt-1 line-clamp-2 min-h-10 break-words text-dim">{project.description}</p>
      <div className="mt-3 flex items-center justify-between gap-3 text-xs text-faint">
        <Badge>{architectureName(project.modelArchitecture)}</Badge>
        <span>
          Changed <TimeAgo at={project.updatedAt} />
        </span>
      </div>
    </Link>
  );
}
