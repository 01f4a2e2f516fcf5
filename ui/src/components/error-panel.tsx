import { TriangleAlert } from "lucide-react";
import { sentenceOf } from "@/api/problem";
import { Button } from "./button";

type ErrorPanelProps = { error: unknown; onRetry: () => void; pending?: boolean };

export function ErrorPanel({ error, onRetry, pending }: ErrorPanelProps) {
  return (
    <div
      role="alert"
      className="flex flex-wrap items-center gap-x-4 gap-y-3 rounded-card border border-danger/35 bg-danger/8 px-4 py-3"
    >
      <TriangleAlert aria-hidden className="size-4.5 shrink-0 text-danger-soft" />
      <p className="min-w-0 flex-1 basis-60">{sentenceOf(error)}</p>
      <Button size="small" pending={pending} onClick={onRetry}>
        Try again
      </Button>
    </div>
  );
}
