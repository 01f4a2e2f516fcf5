import { useQuery } from "@tanstack/react-query";
import { Link, getRouteApi, useNavigate } from "@tanstack/react-router";
import { MessagesSquare } from "lucide-react";
import { useMemo } from "react";
import { jobQuery } from "@/api/jobs";
import type { Source } from "@/api/playground";
import { ApiProblem } from "@/api/problem";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { EmptyState } from "@/components/empty-state";
import { PageHeader } from "@/shell/page-header";
import type { PlaygroundSearch } from "@/shell/search-params";
import { usePageTitle } from "@/shell/use-page-title";
import { ModelChoice } from "./model-choice";
import { Chat } from "./chat";

const route = getRouteApi("/app/playground");

export function PlaygroundPage() {
  usePageTitle("Playground");
  const search = route.useSearch();
  const navigate = useNavigate({ from: "/playground" });
  return (
    <>
      <PageHeader title="Playground" />
      <div className="mb-3.5">
        <ModelChoice chosen={search} onChoose={(next) => void navigate({ search: next })} />
      </div>
      <Chosen search={search} />
    </>
  );
}

function Chosen({ search: { job: jobId, checkpoint, model } }: { search: PlaygroundSearch }) {
  const job = useQuery({ ...jobQuery(jobId ?? ""), enabled: jobId !== undefined });
  const source = useMemo<Source | null>(() => {
    if (model) return { modelId: model };
    return jobId ? { jobId, ...(checkpoint ? { checkpointId: checkpoint } : {}) } : null;
  }, [jobId, checkpoint, model]);
  if (source === null) return <NothingChosen />;
  if (job.error instanceof ApiProblem && job.error.status === 404) return <NothingChosen gone />;
  // A run that is not finished has only its checkpoints.
  if (jobId && !checkpoint && job.data && !(job.data.hasModel && job.data.status === "completed")) return <ChooseCheckpoint />;
  if (jobId && !checkpoint && !job.data) return null;
  const key = [jobId ?? model, checkpoint].filter(Boolean).join(" ");
  return <Chat key={key} source={source} storageKey={key} />;
}

function NothingChosen({ gone = false }: { gone?: boolean }) {
  return (
    <Card>
      <EmptyState
        icon={MessagesSquare}
        title={gone ? "There is no such run any more." : "Choose what to talk to."}
        action={
          <Button asChild variant="primary">
            <Link to="/jobs">Show training jobs</Link>
          </Button>
        }
      >
        A finished run, one of its checkpoints, or a model of yours. It is loaded once, and unloaded when nobody asks it anything for ten minutes.
      </EmptyState>
    </Card>
  );
}

function ChooseCheckpoint() {
  return (
    <Card>
      <EmptyState icon={MessagesSquare} title="This run is not finished.">
        Choose one of its checkpoints above, or come back when it is done.
      </EmptyState>
    </Card>
  );
}
