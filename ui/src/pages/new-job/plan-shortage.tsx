/** A job that does not fit: what fits and what does not, by how much, and the nearest settings that fit. */
import { MEMORY_KINDS, memoriesNeeded, type MemoryUse } from "@/api/plan";
import type { MemoryNeeds, NearestFit } from "@/api/types";
import { Button } from "@/components/button";
import { cn } from "@/components/class-names";
import { bytesText, countText } from "@/text/numbers";

/** Each memory with its least need against what there is. */
export function MemoryShortage({ needs }: { needs: MemoryNeeds }) {
  return (
    <ul aria-label="Least memory needed" className="mt-4 grid gap-3">
      {memoriesNeeded(needs).map((memory) => (
        <NeedBar key={memory.name} memory={memory} />
      ))}
    </ul>
  );
}

function NeedBar({ memory: { name, total, limit } }: { memory: MemoryUse }) {
  const over = total - limit;
  const scale = Math.max(total, limit);
  return (
    <li>
      <div className="mb-1.5 flex flex-wrap justify-between gap-x-3 text-xs text-dim">
        <span>{name} memory</span>
        <span className="font-[520] text-text tabular-nums">
          {gigabytes(total)} of {gigabytes(limit)},{" "}
          <span className={over > 0 ? "text-danger-soft" : "text-success-soft"}>{over > 0 ? `${gigabytes(over)} too much` : "fits"}</span>
        </span>
      </div>
      <div aria-hidden className="flex h-3 overflow-hidden rounded-md bg-white/6">
        <div className="h-full bg-primary-mid" style={{ width: `${(Math.min(total, limit) / scale) * 100}%` }} />
        {over > 0 && <div className="h-full bg-danger" style={{ width: `${(over / scale) * 100}%` }} />}
      </div>
    </li>
  );
}

/** Never in terabytes: 1.7 of 1.6 would not say what is missing. */
const gigabytes = (bytes: number) => (bytes < 1e11 ? bytesText(bytes) : `${Math.round(bytes / 1e9).toLocaleString("en-GB")} GB`);

type FitListProps = { options: readonly NearestFit[]; pending?: boolean; onTake: (fit: NearestFit) => void };

/** Settings that fit, the smallest change first; one click applies one. */
export function FitList({ options, pending = false, onTake }: FitListProps) {
  if (options.length === 0) return null;
  return (
    <div className="mt-4 border-t border-line pt-3">
      <h3 className="mb-1.5 text-xs text-dim">Settings that would fit</h3>
      <ul className="grid gap-1.5">
        {options.map((fit, index) => (
          <li key={fit.title} className={cn("flex items-center justify-between gap-3 rounded-control border px-3 py-2", index === 0 ? "border-violet-soft/40 bg-violet/8" : "border-line")}>
            <span className="min-w-0">
              <span className="block font-[540] wrap-anywhere">{fit.title}</span>
              <span className="block text-xs text-dim">{fitText(fit)}</span>
            </span>
            <Button size="small" variant={index === 0 ? "primary" : "outline"} disabled={pending} aria-label={`Apply: ${fit.title}`} onClick={() => onTake(fit)}>
              Apply
            </Button>
          </li>
        ))}
      </ul>
    </div>
  );
}

export function fitText({ plan, host_memory, gpus }: NearestFit): string {
  const memory = plan.host ?? plan.memory;
  const used = MEMORY_KINDS.reduce((sum, kind) => sum + memory[kind], 0);
  const where = host_memory !== null || gpus !== null ? "another machine, " : "";
  return `${where}${gigabytes(used)} of host memory, about ${countText(plan.tokens_per_second)} tokens/s`;
}
