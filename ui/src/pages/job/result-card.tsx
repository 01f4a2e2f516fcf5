import { useQuery } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { readSummary } from "@/api/job-summary";
import { checkpointsQuery } from "@/api/jobs";
import type { Job } from "@/api/types";
import { Card, CardHeader } from "@/components/card";
import type { CurveStore } from "@/curves/curve-store";
import { Facts } from "@/pages/jobs/facts";
import { countText, metricText } from "@/text/numbers";

/** What a finished run came to: its last values, and its best. */
export function ResultCard({ job, store }: { job: Job; store: CurveStore }) {
  const { values, step, facts } = readSummary(job);
  const checkpoints = useQuery(checkpointsQuery(job.id));
  const best = checkpoints.data?.items.find((checkpoint) => checkpoint.best);
  const lines: [string, string][] = [];
  const add = (name: string, value: number | undefined, text = metricText) => value !== undefined && lines.push([name, text(value)]);
  add("Final loss", values["train/loss"]);
  add("Final eval loss", values["eval/loss"]);
  const bestEval = useLowest(store, "eval/loss");
  if (bestEval) lines.push(["Best eval loss", `${metricText(bestEval.value)} at step ${countText(bestEval.step)}`]);
  add("Accuracy in evaluation", values["eval/accuracy"], (value) => `${(value * 100).toFixed(1)} %`);
  add("Perplexity in evaluation", values["eval/perplexity"]);
  if (best) lines.push(["Best checkpoint", `step ${countText(best.step)}`]);
  add("Steps", step ?? undefined, countText);
  add("Tokens seen", values["train/tokens_seen"], countText);
  if (typeof facts.model === "string") lines.push(["Model", facts.model]);
  return (
    <Card className="h-full">
      <CardHeader title="Result" />
      <Facts facts={lines} />
    </Card>
  );
}

function useLowest(store: CurveStore, name: string): { step: number; value: number } | null {
  const best = useSyncExternalStore(store.subscribe, () => {
    const curve = store.curve(name);
    if (!curve || curve.value.length === 0) return null;
    const at = curve.low.indexOf(Math.min(...curve.low));
    return `${curve.x[at]} ${curve.low[at]}`;
  });
  if (best === null) return null;
  const [step = 0, value = 0] = best.split(" ").map(Number);
  return { step, value };
}
