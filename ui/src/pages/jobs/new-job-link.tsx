import { Link } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { Button } from "@/components/button";

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
