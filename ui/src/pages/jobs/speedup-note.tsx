/** How much faster than PEFT such a run was when it was measured on this machine. Absent where nobody measured. */
import { Zap } from "lucide-react";
import type { Plan } from "@/api/types";
import { cn } from "@/components/class-names";
import { aboutText, durationText } from "@/text/numbers";

type SpeedupNoteProps = {
  plan: Pick<Plan, "speedup" | "seconds">;
  /** The time that the run took, once it has ended; before, its plan says how long it will take. */
  taken?: number | null;
  className?: string;
};

export function SpeedupNote({ plan: { speedup, seconds }, taken = null, className }: SpeedupNoteProps) {
  if (!speedup) return null;
  const time = taken ?? seconds;
  return (
    <p className={cn("flex items-start gap-2 text-xs text-dim", className)}>
      <Zap aria-hidden className={cn("mt-px size-3.5 shrink-0", speedup.ratio >= 1 ? "text-success" : "text-warning")} />
      <span>
        <span className="font-[560] text-text">{speedup.sentence}.</span> {time !== null && `Training time: ${taken === null ? aboutText(durationText(time)) : durationText(time)} with GPU Bloom, ${aboutText(durationText(time * speedup.ratio))} without. `}
        Measured with {speedup.model}, {speedup.method}, {speedup.precision}.
      </span>
    </p>
  );
}
