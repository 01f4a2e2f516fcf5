/** Where a model comes from and what became of it, as a tree: data and base, run, checkpoints, exports. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Boxes, Database, FileBox, GitBranch, type LucideIcon, PackageOpen, Save } from "lucide-react";
import type { ReactNode } from "react";
import { checkpointsQuery, jobQuery } from "@/api/jobs";
import { isGone } from "@/api/problem";
import { tasksQuery } from "@/api/tasks";
import type { Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { countText } from "@/text/numbers";

type Node = { key: string; icon: LucideIcon; text: ReactNode; note?: string; children?: Node[] };

const MOST_CHECKPOINTS = 5;

export function LineageCard({ job }: { job: Job }) {
  const tree = useLineage(job);
  return (
    <Card>
      <CardHeader title="Lineage" note="data, run, checkpoints, exports" />
      <Branches nodes={tree} />
    </Card>
  );
}

/** Lines at the left join a node with what came of it. */
function Branches({ nodes }: { nodes: Node[] }) {
  return (
    <ul className="grid gap-1.5">
      {nodes.map(({ key, icon: Icon, text, note, children }) => (
        <li key={key}>
          <p className="flex min-w-0 items-baseline gap-2 text-sm">
            <Icon aria-hidden className="size-3.5 shrink-0 translate-y-0.5 text-dim" />
            <span className="min-w-0 wrap-anywhere">{text}</span>
            {note && <span className="text-xs text-dim">{note}</span>}
          </p>
          {children && children.length > 0 && (
            <div className="mt-1.5 ml-1.5 border-l border-line-strong pl-4">
              <Branches nodes={children} />
            </div>
          )}
        </li>
      ))}
    </ul>
  );
}

function useLineage(job: Job): Node[] {
  const checkpoints = useQuery(checkpointsQuery(job.id));
  const exports = useQuery({ ...tasksQuery(job.id, "export"), enabled: job.kind === "train" });
  const parent = useQuery({ ...jobQuery(job.branch?.job_id ?? ""), enabled: job.branch !== null, retry: false });
  const saved = checkpoints.data?.items ?? [];
  const made = (exports.data?.items ?? []).map(
    (task): Node => ({
      key: task.id,
      icon: PackageOpen,
      text: (
        <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId: task.project_id, jobId: task.id }} className="underline-offset-3 hover:text-violet-soft hover:underline">
          Export{task.export_form ? `, ${task.export_form === "gguf" ? "GGUF" : task.export_form}` : ""}
        </Link>
      ),
      note: task.name.replace(job.name, "").replace(/^, /, "") || "final model",
    }),
  );
  const visible = saved.filter(({ best }, index) => best || index < MOST_CHECKPOINTS);
  const run: Node = {
    key: "run",
    icon: Boxes,
    text: <b className="font-[570]">{job.name}</b>,
    note: job.summary.step === null ? undefined : `${countText(job.summary.step)} steps`,
    children: [
      ...visible.map((checkpoint): Node => ({ key: checkpoint.id, icon: Save, text: `Step ${countText(checkpoint.step)}`, note: checkpoint.best ? "best" : undefined })),
      ...(saved.length > visible.length ? [{ key: "more", icon: Save, text: `${countText(saved.length - visible.length)} more checkpoints` }] : []),
      ...(job.has_model ? [{ key: "model", icon: FileBox, text: "Final model" }] : []),
      ...made,
    ],
  };
  const inner = job.branch
    ? [{ key: "branch", icon: GitBranch, text: parent.data ? <JobName job={parent.data} /> : isGone(parent.error) ? "A deleted run" : "Another run", note: `branched at step ${countText(job.branch.step)}`, children: [run] }]
    : [run];
  const datasets = [job.dataset_name, ...job.mix.map(({ name }) => name)].filter(Boolean).join(", ");
  const data = [datasets, job.model_name].filter(Boolean).join(" and ");
  return data === "" ? inner : [{ key: "data", icon: Database, text: data, children: inner }];
}

function JobName({ job }: { job: Job }) {
  return (
    <Link to="/projects/$projectId/jobs/$jobId" params={{ projectId: job.project_id, jobId: job.id }} className="underline-offset-3 hover:text-violet-soft hover:underline">
      {job.name}
    </Link>
  );
}
