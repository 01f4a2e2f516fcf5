import { Search } from "lucide-react";
import { Suspense, lazy, useState } from "react";
import { useFormContext } from "react-hook-form";
import { createJob } from "@/api/jobs";
import { sentenceOf } from "@/api/problem";
import type { NewJob } from "@/api/types";
import { Button } from "@/components/button";
import { Notice } from "@/components/notice";
import { Skeleton } from "@/components/skeleton";
import type { JobFormValues } from "@/forms/job-rules";
import { settingText } from "@/text/numbers";

const LearningRateFinder = lazy(() => import("@/pages/job/learning-rate-finder").then((module) => ({ default: module.LearningRateFinder })));

type RateFinderProps = { ready: boolean; bodyOf: (checked: JobFormValues) => NewJob };

/** A short sweep over learning rates with everything else as in the form; its suggestion can be taken over. */
export function RateFinder({ ready, bodyOf }: RateFinderProps) {
  const { handleSubmit, setValue } = useFormContext<JobFormValues>();
  const [jobId, setJobId] = useState<string | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [pending, setPending] = useState(false);

  const find = handleSubmit(async (checked) => {
    setPending(true);
    setFailure(null);
    try {
      const job = await createJob({ ...bodyOf(checked), kind: "find_learning_rate" });
      // A project that was made for the sweep is also the training's.
      setValue("project", job.projectId);
      setJobId(job.id);
    } catch (error) {
      setFailure(sentenceOf(error));
    } finally {
      setPending(false);
    }
  });

  return (
    <div className="grid gap-3">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1.5">
        <Button size="small" pending={pending} disabled={!ready} onClick={() => void find()}>
          {!pending && <Search aria-hidden />}
          {jobId ? "Search again" : "Find a good learning rate"}
        </Button>
        <span className="text-xs text-faint">A short sweep of its own; nothing of it stays in the model.</span>
      </div>
      {failure && (
        <Notice tone="bad" role="alert">
          {failure}
        </Notice>
      )}
      {jobId && (
        <section aria-label="Learning-rate finder" className="rounded-control border border-line px-3.5 py-3">
          <Suspense fallback={<Skeleton className="h-52" />}>
            <LearningRateFinder key={jobId} jobId={jobId} onUse={(rate) => setValue("config.learning_rate" as keyof JobFormValues, settingText(rate), { shouldDirty: true, shouldValidate: true })} />
          </Suspense>
        </section>
      )}
    </div>
  );
}
