import type { ReactNode } from "react";
import type { Project } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { TimeAgo } from "@/components/time-ago";
import { modelSizeText } from "@/text/model-size";
import { architectureName } from "./architecture-name";

function Line({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="flex flex-wrap items-baseline justify-between gap-x-4 gap-y-0.5">
      <dt className="text-dim">{name}</dt>
      <dd className="min-w-0 font-[520]">{children}</dd>
    </div>
  );
}

export function ProjectDetailsCard({ project }: { project: Project }) {
  return (
    <Card>
      <CardHeader title="Details" />
      <dl className="grid gap-2 text-sm">
        <Line name="Architecture">{architectureName(project.modelArchitecture)}</Line>
        <Line name="Size">{modelSizeText(project.modelSize)} parameters</Line>
        <Line name="Training data">
          {project.trainingDataPath ? (
            <span className="font-mono text-xs break-all">{project.trainingDataPath}</span>
          ) : (
            <span className="font-[420] text-dim">not set</span>
          )}
        </Line>
        <Line name="Created">
          <TimeAgo at={project.createdAt} />
        </Line>
        <Line name="Changed">
          <TimeAgo at={project.updatedAt} />
        </Line>
      </dl>
    </Card>
  );
}
