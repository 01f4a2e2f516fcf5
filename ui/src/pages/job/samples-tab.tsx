/** What the model answers: the sample prompts of its run over steps, and the prompts of its evaluations. */
import { useQuery } from "@tanstack/react-query";
import { MessagesSquare } from "lucide-react";
import { useState } from "react";
import { jobQuery } from "@/api/jobs";
import { tasksQuery } from "@/api/tasks";
import type { Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { Select } from "@/components/input";
import { EmptyState, Loaded, SkeletonRows } from "@/components/loaded";
import { exactTime } from "@/components/time-ago";
import { AnswerPages } from "./evaluation-card";
import { TabLink } from "./overview-tab";
import { SamplesOverSteps } from "./samples-over-steps";

export function SamplesTab({ job }: { job: Job }) {
  return (
    <div className="grid gap-3">
      <SamplesOverSteps job={job} />
      {job.kind === "train" && <EvaluationAnswers job={job} />}
    </div>
  );
}

/** The answers of one evaluation; the newest, or the one chosen. */
function EvaluationAnswers({ job }: { job: Job }) {
  const tasks = useQuery({ ...tasksQuery(job.id, "evaluate"), enabled: job.kind === "train" });
  const [chosen, setChosen] = useState<string | null>(null);
  const ended = tasks.data?.items.filter(({ status }) => status === "completed") ?? [];
  const id = chosen ?? ended[0]?.id;
  const task = useQuery({ ...jobQuery(id ?? ""), enabled: id !== undefined });
  const result = task.data?.result?.kind === "evaluate" ? task.data.result : null;
  return (
    <Card>
      <CardHeader title="Answers of evaluations" note={result && "same prompt, before and after training"}>
        {ended.length > 1 && <Select aria-label="Choose evaluation" className="w-64 max-sm:w-full" value={id} onChange={(event) => setChosen(event.target.value)} options={ended.map((each) => [each.id, exactTime(new Date(each.created_at))] as const)} />}
      </CardHeader>
      <Loaded query={tasks} skeleton={<SkeletonRows rows={3} className="h-24" />}>
        {() =>
          id === undefined || (result && result.prompts.length === 0) ? (
            <EmptyState icon={MessagesSquare} title="No answers yet.">
              Evaluate the model with your own prompts to compare its answers before and after training. <TabLink tab="evaluate">Evaluate</TabLink>
            </EmptyState>
          ) : (
            <Loaded query={task} skeleton={<SkeletonRows rows={3} className="h-24" />}>
              {() => <AnswerPages prompts={result?.prompts ?? []} perPage={3} />}
            </Loaded>
          )
        }
      </Loaded>
    </Card>
  );
}
