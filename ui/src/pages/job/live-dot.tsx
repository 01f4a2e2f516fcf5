import { cn } from "@/components/class-names";
import type { Connection } from "./use-job-live";

const STATES: Record<Exclude<Connection, "resting">, { text: string; className: string }> = {
  connecting: { text: "connecting", className: "bg-faint" },
  live: { text: "live", className: "bg-success" },
  lost: { text: "connection lost", className: "bg-warning" },
};

/** Whether what is shown is what happens now. */
export function LiveDot({ connection }: { connection: Connection }) {
  if (connection === "resting") return null;
  const { text, className } = STATES[connection];
  return (
    <span className="inline-flex items-center gap-1.5 text-xs font-[450] tracking-normal text-dim">
      <span aria-hidden className={cn("size-1.5 rounded-full", className)} />
      {text}
    </span>
  );
}
