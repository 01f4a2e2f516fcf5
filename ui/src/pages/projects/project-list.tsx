import { Link } from "@tanstack/react-router";
import type { Project } from "@/api/types";
import { type Column, DataTable } from "@/components/data-table";
import { TimeAgo } from "@/components/time-ago";
import { modelSizeText } from "@/text/model-size";
import { architectureName } from "./architecture-name";

const columns: Column<Project>[] = [
  { header: "Name", lead: true, cell: (project) => <ProjectListItem project={project} /> },
  { header: "Architecture", cell: (project) => architectureName(project.modelArchitecture) },
  { header: "Size", end: true, cell: (project) => <span className="font-[540]">{modelSizeText(project.modelSize)}</span> },
  {
    header: "Training data",
    cell: ({ trainingDataPath: path }) =>
      path && (
        <span className="line-clamp-1 max-w-72 font-mono text-xs break-all text-dim" title={path}>
          {path}
        </span>
      ),
  },
  { header: "Changed", end: true, cell: (project) => <span className="text-dim"><TimeAgo at={project.updatedAt} /></span> },
];

export function ProjectList({ projects }: { projects: Project[] }) {
  return <DataTable label="Projects" columns={columns} rows={projects} rowKey={(project) => project.id} />;
}

function ProjectListItem({ project }: { project: Project }) {
  return (
    <div className="min-w-0 md:max-w-md">
      <Link
        to="/projects/$projectId"
        params={{ projectId: project.id }}
        className="font-[570] break-words underline-offset-3 hover:text-violet-soft hover:underline"
      >
        {project.name}
      </Link>
      {project.description && <p className="line-clamp-1 text-sm break-all text-dim">{project.description}</p>}
    </div>
  );
}
