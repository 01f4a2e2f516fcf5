/** Buttons that start a job: a new one, or the demo. */
import { Link, useNavigate } from "@tanstack/react-router";
import { Plus, Sprout } from "lucide-react";
import { createJob } from "@/api/jobs";
import { Button } from "@/components/button";
import { toast, useAction } from "@/components/toasts";

/** Leads to the form for a new job, with the project already chosen where there is one. */
export function NewJobLink({ projectId }: { projectId?: string }) {
  const content = (
    <>
      <Plus aria-hidden />
      Start new training job
    </>
  );
  return (
    <Button asChild variant="primary">
      {projectId ? (
        <Link to="/projects/$projectId/jobs/new" params={{ projectId }}>
          {content}
        </Link>
      ) : (
        <Link to="/jobs/new">{content}</Link>
      )}
    </Button>
  );
}

/** Without a model and a dataset, the server trains its demo: a small model on text that every machine has. */
const DEMO = {
  name: "Demo run",
  project: { name: "Demo", description: "A small model, trained on built-in text.", model_architecture: "transformer" as const },
};

export function DemoButton({ variant = "primary" }: { variant?: "primary" | "outline" }) {
  const navigate = useNavigate();
  const { pending, run } = useAction(async () => {
    const job = await createJob(DEMO);
    toast("The demo run is queued.");
    await navigate({ to: "/projects/$projectId/jobs/$jobId", params: { projectId: job.project_id, jobId: job.id } });
  });

  return (
    <Button variant={variant} pending={pending} onClick={run}>
      {!pending && <Sprout aria-hidden />}
      Start a demo run
    </Button>
  );
}
