import { Link, useNavigate } from "@tanstack/react-router";
import { MessagesSquare } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/button";
import { Menu } from "@/components/menu";
import { countText } from "@/text/numbers";
import { EvaluateDialog } from "./evaluate-dialog";
import { ExportDialog } from "./export-dialog";

export type Subject = {
  jobId: string;
  projectId: string;
  /** Full fine-tuning has no adapter to export. */
  method: string | null;
  /** Null for the finished model. */
  checkpoint: { id: string; step: number } | null;
};

/** What can be done with a checkpoint, in a row of a table. */
export function CheckpointActions({ subject, onPage }: { subject: Subject; onPage: boolean }) {
  const [open, setOpen] = useState<"evaluate" | "export" | null>(null);
  const navigate = useNavigate();
  const { jobId, projectId, checkpoint } = subject;
  const name = checkpoint ? `step ${countText(checkpoint.step)}` : "the finished model";
  const close = () => setOpen(null);
  // From another page, what was started is shown where it belongs.
  const started = () => {
    close();
    if (!onPage) void navigate({ to: "/projects/$projectId/jobs/$jobId", params: { projectId, jobId }, hash: open === "export" ? "export" : "evaluation" });
  };
  return (
    <span className="inline-flex items-center gap-1">
      <Button asChild variant="ghost" size="small">
        <Link to="/playground" search={{ job: jobId, checkpoint: checkpoint?.id }} aria-label={`Talk to ${name}`}>
          <MessagesSquare aria-hidden />
          Talk
        </Link>
      </Button>
      <Menu
        label={`More for ${name}`}
        items={[
          { text: "Evaluate", onChoose: () => setOpen("evaluate") },
          { text: "Export", onChoose: () => setOpen("export") },
          { text: "Compare its run", onChoose: () => void navigate({ to: "/compare", search: { job: [jobId], pick: true } }) },
        ]}
      />
      {open === "evaluate" && <EvaluateDialog subject={subject} onClose={close} onStarted={started} />}
      {open === "export" && <ExportDialog subject={subject} onClose={close} onStarted={started} />}
    </span>
  );
}
