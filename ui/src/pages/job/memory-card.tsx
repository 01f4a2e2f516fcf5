import { readPlan, readSummary } from "@/api/job-summary";
import type { Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import { Facts } from "@/pages/jobs/facts";
import { MemoryBars } from "@/pages/jobs/memory-bars";
import { bytesText, countText, parametersText } from "@/text/numbers";

export function MemoryCard({ job }: { job: Job }) {
  const plan = readPlan(job.plan);
  const { system } = readSummary(job);
  if (plan === null) return null;
  const actual = plan.device === "cpu" ? system["process/ram"] : system["gpu/0/memory_used"];
  const facts: [string, string][] = [
    ["Device", plan.device === "cpu" ? "CPU" : (job.gpuType ?? "GPU")],
    ["Precision", plan.precision],
  ];
  if (plan.parameters !== null) facts.unshift(["Parameters", parametersText(plan.parameters)]);
  if (plan.tokensPerStep !== null) facts.push(["Tokens per step", countText(plan.tokensPerStep)]);
  if (plan.tokensPerSecond !== null) facts.push(["Planned speed", `${countText(plan.tokensPerSecond)} tok/s`]);
  return (
    <Card className="h-full">
      <CardHeader title="Where memory lives" note={actual === undefined ? "planned" : `planned ${bytesText(plan.memoryTotal)} · now ${bytesText(actual)}`} />
      <MemoryBars plan={plan} />
      <div className="mt-4">
        <Facts facts={facts} />
      </div>
    </Card>
  );
}
